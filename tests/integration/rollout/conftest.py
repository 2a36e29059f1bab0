"""A rollout servicer over real gRPC, and the weights that are sent to it."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import grpc.aio
import pytest
from fake_sglang_world import LORA, FakeSglangWorld
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM
from weight_fleet import Fleet, running_fleet

from benchmarks.random_model import save_random_model
from troupe.api.rollout.v1.rollout_pb2_grpc import add_RolloutServiceServicer_to_server
from troupe.clients.channel import SERVER_OPTIONS
from troupe.clients.rollout import RolloutClient
from troupe.runtime.engines.engine import StagedWeights
from troupe.runtime.serving.interceptor import ErrorInterceptor
from troupe.spec.policy import FullSpec, LoraSpec, PolicySpec
from troupe_rollout.engines.cpu import CpuEngine
from troupe_rollout.engines.cpu.settings import CpuEngineSettings
from troupe_rollout.servicer import RolloutServicer
from troupe_rollout.settings import RolloutSettings
from troupe_rollout.staging import StagingArea
from troupe_trainer.model.model import PolicyModel


@pytest.fixture(scope="session")
def rollout_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_random_model(tmp_path_factory.mktemp("random") / "model")


@pytest.fixture(scope="session")
def rollout_weights(rollout_model: Path) -> Path:
    model = AutoModelForCausalLM.from_pretrained(rollout_model)
    path = rollout_model / "weights-to-send"
    save_file({name: p.detach().clone() for name, p in model.named_parameters()}, path)
    return path


@dataclass(frozen=True)
class Rollout:
    """A servicer on a real port, its client and its staging folder."""

    client: RolloutClient
    channel: grpc.aio.Channel
    servicer: RolloutServicer
    staging_dir: Path
    told: list[str]

    def files_left(self) -> list[Path]:
        return [path for path in self.staging_dir.rglob("*") if path.is_file()]


@pytest.fixture
async def rollout(rollout_model: Path, tmp_path: Path) -> AsyncIterator[Rollout]:
    engine = CpuEngine(CpuEngineSettings())
    await engine.start({"shared": PolicySpec(model=str(rollout_model))})
    staging = StagingArea(str(tmp_path), max_bytes=2**22, max_uploads=2, chunk_timeout_s=0.5)
    staging.open()
    told: list[str] = []
    servicer = RolloutServicer(
        RolloutSettings(), engine, staging, tell=lambda: told.append("changed")
    )
    servicer.open(str(rollout_model), "job")
    server = grpc.aio.server(interceptors=[ErrorInterceptor()], options=SERVER_OPTIONS)
    add_RolloutServiceServicer_to_server(servicer, server)
    address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    await server.start()
    client = RolloutClient(address, retry_for_s=0.0)
    channel = grpc.aio.insecure_channel(address)
    yield Rollout(client, channel, servicer, tmp_path, told)
    await client.close()
    await channel.close()
    await server.stop(None)
    await engine.stop()
    staging.close()


@pytest.fixture(scope="session")
def wide_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_random_model(tmp_path_factory.mktemp("wide") / "model", hidden=96)


@pytest.fixture(scope="session")
def adapter(wide_model: Path, tmp_path_factory: pytest.TempPathFactory) -> StagedWeights:
    spec = PolicySpec(model=str(wide_model), train=LORA)
    model = PolicyModel("p", spec, seed=0, device="cpu")
    path = tmp_path_factory.mktemp("adapter") / "weights.safetensors"
    save_file(model.weights(), path)
    return StagedWeights("p", 1, "lora", path, model.adapter_config_json)


@pytest.fixture
async def world(
    tmp_path: Path, wide_model: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[FakeSglangWorld]:
    monkeypatch.setenv("FAKE_SGLANG_DIR", str(tmp_path))
    found = FakeSglangWorld(tmp_path, wide_model, [])
    yield found
    for engine in found.engines:
        await engine.stop()


@pytest.fixture(params=["full"])
def train(request: pytest.FixtureRequest) -> FullSpec | LoraSpec:
    return FullSpec() if request.param == "full" else LoraSpec(rank=2, alpha=4)


@pytest.fixture
async def fleet(
    rollout_model: Path, tmp_path: Path, train: FullSpec | LoraSpec
) -> AsyncIterator[Fleet]:
    """Two replicas of the cpu engine and a trainer."""
    async with running_fleet(rollout_model, tmp_path, train) as running:
        yield running
