"""A random model on disk and an engine that serves it at version 0."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM

from benchmarks.random_model import save_random_model
from troupe.runtime.engines.engine import StagedWeights
from troupe.spec.policy import PolicySpec
from troupe_rollout.engines.cpu import CpuEngine
from troupe_rollout.engines.cpu.settings import CpuEngineSettings


@pytest.fixture(scope="session")
def model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_random_model(tmp_path_factory.mktemp("random") / "model")


@pytest.fixture(scope="session")
def base_weights(model_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All weights of the model as one file, as a trainer of full weights sends them."""
    model = AutoModelForCausalLM.from_pretrained(model_dir)
    path = tmp_path_factory.mktemp("weights") / "base.safetensors"
    save_file({name: p.detach().clone() for name, p in model.named_parameters()}, path)
    return path


@pytest.fixture
async def engine(model_dir: Path, base_weights: Path) -> AsyncIterator[CpuEngine]:
    engine = CpuEngine(CpuEngineSettings(max_rows=64, max_in_flight=512, max_prefill_tokens=128))
    await engine.start({"shared": PolicySpec(model=str(model_dir))})
    await engine.stage(StagedWeights("shared", 0, "full", base_weights, ""))
    await engine.activate("shared", 0)
    yield engine
    await engine.stop()
