"""Whose weights a replica takes: of the job's one trainer, or of each policy's own."""

from pathlib import Path
from typing import Any

import pytest

from troupe.errors import FencedError
from troupe_rollout.staging import StagingArea
from troupe_rollout.weight_receiver import WeightReceiver


class NoEngine:
    """Takes note of what was discarded."""

    def __init__(self) -> None:
        self.discarded: list[str] = []

    async def discard(self, policy: str, policy_version: int) -> None:
        self.discarded.append(policy)


@pytest.fixture
def engine() -> Any:
    return NoEngine()


@pytest.fixture
def intake(engine: Any, tmp_path: Path) -> WeightReceiver:
    staging = StagingArea(tmp_path, max_bytes=1000, max_uploads=1, chunk_timeout_s=1)
    return WeightReceiver(engine, staging, lease_s=100)


async def test_change_when_the_job_has_one_trainer_then_its_epoch_is_that_of_every_policy(
    intake: WeightReceiver, engine: Any
) -> None:
    await intake.discard("a", 1, epoch=2)
    with pytest.raises(FencedError, match="epoch 2 has taken over policy 'b'"):
        await intake.discard("b", 1, epoch=1)
    intake.refuse_before(3)
    with pytest.raises(FencedError, match="epoch 3 has taken over policy 'a'"):
        await intake.discard("a", 1, epoch=2)
    assert engine.discarded == ["a"]


async def test_change_when_policies_have_trainers_then_only_the_same_policy_is_taken_over(
    intake: WeightReceiver, engine: Any
) -> None:
    intake.refuse_before_each({"a": 0, "b": 0})
    await intake.discard("a", 1, epoch=5)
    await intake.discard("b", 1, epoch=3)
    intake.refuse_before_each({"a": 6, "b": 3})
    with pytest.raises(FencedError, match="epoch 6 has taken over policy 'a'"):
        await intake.discard("a", 1, epoch=5)
    await intake.discard("b", 1, epoch=3)
    await intake.discard("b", 1, epoch=4)
    with pytest.raises(FencedError, match="policy 'b'"):
        await intake.discard("b", 1, epoch=3)
    assert engine.discarded == ["a", "b", "b", "b"]
