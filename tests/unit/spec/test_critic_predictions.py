"""What a critic adds to the predictions of a job: memory, deadlines, the run folder's size."""

from typing import Any

import pytest

from troupe.algorithms.load import load_algorithm
from troupe.errors import InvalidArgumentError
from troupe.plugins import registered
from troupe.spec.algorithm import AlgorithmSpec
from troupe.spec.critics import CENTRALISED
from troupe.spec.deadlines import checkpoint_s, load_s
from troupe.spec.fit import fit_batch
from troupe.spec.growth import StepCounts, run_growth
from troupe.spec.job import JobSpec
from troupe.spec.memory import GB, trainer_held, trainer_peak

QWEN3_8B, QWEN3_14B = 8_190_735_360, 14_768_307_200
"""Parameters."""
FULL = {"kind": "full"}


def spec(
    algorithm: dict[str, Any], num_policies: int = 1, train: dict[str, Any] | None = None
) -> JobSpec:
    names = ["a", "b"][:num_policies]
    policy = {"model": "Qwen/Qwen3-8B", "dtype": "bfloat16", "train": train or {"kind": "lora"}}
    return JobSpec.model_validate(
        {
            "name": "critics",
            "steps": 1,
            "task": {"name": "plan_path"},
            "workflow": {"order": names, "max_turns": 4},
            "agents": {name: {"policy": name} for name in names},
            "policies": dict.fromkeys(names, policy),
            "algorithm": algorithm,
        }
    )


def ippo(kind: str = "ippo", **critic: Any) -> dict[str, Any]:
    return {"kind": kind, "critic": {"kind": "model", **critic}}


def peak(job: JobSpec) -> float:
    bytes_ = trainer_peak(job, tokens=4096, checkpoint_activations=True)
    assert bytes_ is not None
    return bytes_


def test_peak_when_a_critic_is_trained_whole_then_has_its_weights_moments_and_gradient() -> None:
    alone = peak(spec({"kind": "grpo"}))
    assert peak(spec(ippo(train=FULL))) - alone > 12 * QWEN3_8B
    large = peak(spec(ippo("mappo", model="Qwen/Qwen3-14B", train=FULL)))
    assert large - alone > 12 * QWEN3_14B
    # An adapter is on the base that the policy's is on.
    assert 0 < peak(spec(ippo())) - alone < 1 * GB
    # Of a policy that is trained whole there is none; critics share the one that they load.
    own = spec(ippo(), 2, FULL)
    held = (trainer_held(own) or 0.0) - (trainer_held(spec({"kind": "grpo"}, 2, FULL)) or 0.0)
    assert 2 * QWEN3_8B < held < 2 * QWEN3_8B + 2 * GB
    head = {"kind": "ippo", "critic": {"kind": "head"}}
    assert peak(spec(head)) == peak(spec({"kind": "grpo", "loss": {}}))


def test_peak_when_the_team_has_one_critic_then_it_counts_once_and_trainers_apart() -> None:
    each, team = (trainer_held(spec(ippo(kind, train=FULL), 2)) for kind in ("ippo", "mappo"))
    assert each is not None
    assert team is not None
    assert each - team == pytest.approx(12 * QWEN3_8B)
    job = spec(ippo(train=FULL), 2)
    apart = job.trainer.model_copy(update={"per_policy": True})
    assert peak(job.model_copy(update={"trainer": apart})) == peak(spec(ippo(train=FULL)))


def test_centralised_when_compared_with_what_the_algorithms_need_then_are_the_same() -> None:
    joint = set[str]()
    for name in registered("troupe.algorithms"):
        for options in ({}, {"critic": {"kind": "model"}}):
            try:
                algorithm = load_algorithm(AlgorithmSpec.model_validate({"kind": name, **options}))
            except InvalidArgumentError:
                continue
            if algorithm.needs.values == "joint":
                joint.add(name)
    assert joint == CENTRALISED


def test_fit_when_the_critic_does_not_fit_then_says_to_train_an_adapter_and_not_to_spread() -> None:
    assert fit_batch(spec(ippo()), 80 * GB).peak_bytes
    with pytest.raises(InvalidArgumentError, match="train the critic by an adapter") as refusal:
        fit_batch(spec(ippo(train=FULL)), 80 * GB)
    assert "trainer.gpus" not in refusal.value.message


def test_deadlines_and_growth_when_there_is_a_critic_then_have_its_bytes() -> None:
    bare, with_critic = spec({"kind": "grpo"}), spec(ippo(model="Qwen/Qwen3-14B", train=FULL))
    assert load_s(with_critic) - load_s(bare) == pytest.approx(2 * QWEN3_14B / 25e6)
    assert load_s(spec(ippo())) == load_s(bare)
    assert checkpoint_s(with_critic) - checkpoint_s(bare) == pytest.approx(12 * QWEN3_14B / 25e6)
    sizes = [run_growth(job, StepCounts(0, 0, 0)).weights_bytes for job in (with_critic, bare)]
    kept = bare.checkpoint.keep_last + bare.checkpoint.keep_best
    assert (sizes[0] or 0.0) - (sizes[1] or 0.0) == pytest.approx(kept * 12 * QWEN3_14B)
