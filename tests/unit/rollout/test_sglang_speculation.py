"""Speculation is a setting of GPUs: SGLang's flags there, and a refusal by name elsewhere."""

from pathlib import Path
from typing import Any

import pytest

from troupe.candidates import GenerateRequest
from troupe.errors import InvalidArgumentError
from troupe.runtime.engines.presets import ModelShape
from troupe.spec.job import SamplingSpec
from troupe.spec.policy import LoraSpec, PolicySpec
from troupe_rollout.engines.sglang.command import ServerPlan, server_argv
from troupe_rollout.engines.sglang.environment import Machine
from troupe_rollout.engines.sglang.model import SglangModel
from troupe_rollout.engines.sglang.plan import plan_servers
from troupe_rollout.engines.sglang.settings import SglangSettings, load_settings
from troupe_rollout.engines.sglang.translate import check_speculation

SHAPE = ModelShape(64, 2, 4, 2, 16, 128, 100, True)
NAME = "TROUPE_ROLLOUT_SGLANG_SPECULATION"


def argv(**settings: Any) -> list[str]:
    plan = ServerPlan(Path("/m"), "bfloat16", "cuda", 256, None)
    return server_argv(SglangSettings(**settings), plan, python="python", port=1)


def test_speculation_when_on_a_gpu_then_a_chain_of_drafts_is_asked_for_and_no_threshold() -> None:
    plain, found = argv(), argv(speculation="ngram", speculation_tokens=6)
    assert not any("speculative" in word for word in plain)
    at = found.index("--speculative-algorithm")
    assert found[at + 1] == "NGRAM"
    assert found[found.index("--speculative-ngram-max-bfs-breadth") + 1] == "1"
    assert found[found.index("--speculative-num-draft-tokens") + 1] == "6"
    assert not any("threshold" in word for word in found)


def test_speculation_when_the_machine_has_no_gpu_then_refused_with_the_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    policies = {"a": PolicySpec(model="m", train=LoraSpec(rank=4, alpha=8), dtype="bfloat16")}
    bases = {"a": SglangModel("m", Path("/m"), None, SHAPE, 256, (2,), {})}
    settings = SglangSettings(speculation="ngram")
    assert plan_servers(settings, Machine("cuda", 2**34), policies, bases)
    with pytest.raises(InvalidArgumentError, match=rf"{NAME} is 'ngram'.*would not sample"):
        plan_servers(settings, Machine("cpu", 2**34), policies, bases)
    monkeypatch.setenv(NAME, "ngram")
    monkeypatch.setenv("TROUPE_ROLLOUT_SGLANG_DEVICE", "cpu")
    with pytest.raises(InvalidArgumentError, match="speculation needs a GPU"):
        load_settings()


def test_speculation_when_the_server_is_not_ours_then_refused() -> None:
    with pytest.raises(ValueError, match="starts itself"):
        SglangSettings(speculation="ngram", url="http://127.0.0.1:1")


def test_speculation_when_seeds_are_to_be_honoured_then_refused() -> None:
    with pytest.raises(ValueError, match="speculation and deterministic exclude each other"):
        SglangSettings(speculation="ngram", deterministic=True)


@pytest.mark.parametrize("cut", [{"top_p": 0.9}, {"top_k": 5}])
def test_request_when_it_cuts_the_distribution_then_refused_by_name(cut: dict[str, Any]) -> None:
    sampling = SamplingSpec(max_new_tokens=4, **cut)
    with pytest.raises(InvalidArgumentError, match=NAME):
        check_speculation(GenerateRequest("p", 0, [1], 2, sampling, 0))
    whole = SamplingSpec(max_new_tokens=4, temperature=0.7)
    check_speculation(GenerateRequest("p", 0, [1], 2, whole, 0))
