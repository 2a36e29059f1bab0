"""Past versions in the trainer: never trained, and taken over when they are due."""

from pathlib import Path
from typing import Any

import pytest
import torch
from trainer_data import groups_of_step, job_spec

from troupe_trainer.learn.collector import Batch
from troupe_trainer.learn.learners import Learners


def league(model: Path, every: int):
    policy: dict[str, Any] = {
        "model": str(model),
        "train": {"kind": "lora", "rank": 4, "alpha": 8},
        "optimizer": {"learning_rate": 0.01, "warmup_steps": 0},
    }
    rival = {**policy, "past": {"of": "shared", "every": every}}
    return job_spec(
        model,
        agents={"tool": {"policy": "shared"}, "planner": {"policy": "rival"}},
        policies={"shared": policy, "rival": rival},
    )


def weights(team: Learners, policy: str) -> dict[str, torch.Tensor]:
    found = team.by_policy[policy].model.trainable()
    return {name: weight.detach().clone() for name, weight in found.items()}


def equal(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[n], other[n]) for n in one)


async def load(model: Path, run_dir: Path, every: int) -> Learners:
    return await Learners.load(league(model, every), run_dir, device="cpu", threads=1)


def batch(step: int) -> Batch:
    groups = groups_of_step(step, tasks=2)
    # Groups that claim to be the rival's are there too: a past version must not learn from any.
    return Batch(step, {"shared": groups, "rival": groups}, {})


async def test_past_version_when_due_then_has_the_weights_of_its_policy_and_keeps_them(
    tiny_model: Path, tmp_path: Path
) -> None:
    team = await load(tiny_model, tmp_path, every=2)
    try:
        first = weights(team, "rival")
        await team.learn(batch(0))
        assert equal(weights(team, "rival"), first)
        assert not equal(weights(team, "shared"), first)
        learned = await team.learn(batch(1))
        second = weights(team, "shared")
        assert equal(weights(team, "rival"), second)
        assert learned.outcomes["rival"].trained_tokens == 0
        await team.learn(batch(2))
        assert equal(weights(team, "rival"), second)
        assert not equal(weights(team, "shared"), second)
    finally:
        team.close()


async def test_past_version_when_never_due_then_stays_as_it_was(
    tiny_model: Path, tmp_path: Path
) -> None:
    team = await load(tiny_model, tmp_path, every=0)
    try:
        first = weights(team, "rival")
        for step in range(3):
            await team.learn(batch(step))
        assert equal(weights(team, "rival"), first)
    finally:
        team.close()


@pytest.mark.parametrize("stop_after", [1, 2])
async def test_past_version_when_the_trainer_is_restored_then_goes_on_the_same(
    tiny_model: Path, tmp_path: Path, stop_after: int
) -> None:
    whole, again = [await load(tiny_model, tmp_path, every=2) for _ in range(2)]
    try:
        for step in range(stop_after):
            await whole.learn(batch(step))
        again.restore(whole.states())
        for step in range(stop_after, 4):
            await whole.learn(batch(step))
            await again.learn(batch(step))
        assert equal(weights(again, "rival"), weights(whole, "rival"))
        assert equal(weights(again, "shared"), weights(whole, "shared"))
    finally:
        whole.close()
        again.close()
