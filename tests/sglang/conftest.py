"""Real SGLang on this machine's CPU. Run by `make test-sglang`; anywhere else it is skipped."""

import itertools
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
import pytest_asyncio
from sglang_world import LORA, engine_settings, lora_policies

from benchmarks.random_model import save_random_model
from benchmarks.rollout_fleet import TinyTrainer
from troupe.spec.policy import LoraSpec, PolicySpec
from troupe_rollout.engines.sglang import SglangEngine
from troupe_rollout.engines.sglang.settings import SglangSettings

HERE = Path(__file__).parent


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    ours = [item for item in items if HERE in item.path.parents]
    wanted = "sglang" in str(config.getoption("-m"))
    why = "" if wanted else "real SGLang takes minutes; run `make test-sglang`"
    if not Path(SglangSettings().interpreter()).parent.parent.name.startswith(".venv-sglang"):
        why = "SGLang's environment is not here; `make test-sglang` makes it"
    for item in ours:
        item.add_marker(pytest.mark.sglang)
        if item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(600))
        if why:
            item.add_marker(pytest.mark.skip(reason=why))


@pytest.fixture(scope="session")
def sglang_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random Qwen3 whose MLP is a multiple of 32, as SGLang's adapters need on a CPU."""
    return save_random_model(tmp_path_factory.mktemp("sglang") / "model", hidden=96)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def lora_engine(
    sglang_model: Path, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[SglangEngine]:
    """One server for all tests of adapters; each uses versions or a policy of its own."""
    engine = SglangEngine(engine_settings(tmp_path_factory.mktemp("work")))
    names = ("p", "q", "parity", "many", "bad", "wire", "gone")
    await engine.start(lora_policies(sglang_model, *names))
    yield engine
    starts = [server.num_starts for server in engine._servers]
    await engine.stop()
    assert starts == [1], "the server died in between"


@pytest.fixture
def new_trainer(sglang_model: Path, tmp_path: Path) -> Callable[..., TinyTrainer]:
    """Makes the trainer's side of a policy, with a folder of its own."""
    folders = (tmp_path / f"out-{number}" for number in itertools.count())

    def make(policy: str, spec: LoraSpec = LORA, model: Path = sglang_model) -> TinyTrainer:
        return TinyTrainer(policy, PolicySpec(model=str(model), train=spec), next(folders))

    return make
