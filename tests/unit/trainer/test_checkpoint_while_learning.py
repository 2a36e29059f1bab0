"""A checkpoint that is asked for while weights move, as when a job is paused then."""

import sys
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest
from trainer_data import groups_of_step, job_spec

from troupe.algorithms.grpo import Grpo
from troupe.candidates import GroupOutcome
from troupe.errors import JobFailedError
from troupe.runtime.step_report.trainer import TrainerPart
from troupe_trainer.checkpoint.checkpointing import Checkpointing
from troupe_trainer.checkpoint.files import CheckpointContents
from troupe_trainer.learn.collector import Batch
from troupe_trainer.learn.learners import Learned, Learners


class _Learners:
    """Learners whose weights are one number."""

    policy = ""

    def __init__(self) -> None:
        self.weights = 0

    async def on_thread(self, work: Callable[[], Any]) -> Any:
        return work()

    def states(self, folder: Path) -> dict[str, Any]:
        del folder
        return {"shared": self.weights}

    def baselines(self) -> dict[str, Any]:
        return {}


class _Disk:
    """The weights that each step's checkpoint holds."""

    def __init__(self) -> None:
        self.weights: dict[int, Any] = {}

    def begin(self, step: int) -> Path:
        return Path(str(step))

    def save(self, contents: CheckpointContents) -> None:
        self.weights[contents.step] = contents.learners["shared"]


@pytest.mark.parametrize("every", [1, 2])
async def test_checkpoint_when_asked_for_while_weights_move_then_is_not_made(every: int) -> None:
    learners, disk = _Learners(), _Disk()
    spec = job_spec(Path("model"), steps=4, checkpoint={"every": every})
    events = cast("Any", None)  # nothing is said here
    checkpointing = Checkpointing(spec, cast("Any", learners), cast("Any", disk), events)

    async def learn(step: int) -> None:
        checkpointing.begin_learning()
        learners.weights = step

    async def note(step: int) -> None:
        batch = Batch(step=step, groups={}, dropped={})
        await checkpointing.write(step, batch, Learned({}, {}), TrainerPart(step=step))

    await learn(1)
    await note(1)
    await learn(2)
    covered = await checkpointing.cover()
    await checkpointing.save()
    assert disk.weights == ({1: 1} if every == 1 else {})  # never step 1 with the weights of 2
    assert covered == (1 if every == 1 else 0)
    await note(2)
    await checkpointing.save()
    assert disk.weights == ({1: 1, 2: 2} if every == 1 else {2: 2})


class Summing(Grpo):
    """Remembers the rewards so far, in a mapping that it goes on changing."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.seen: dict[str, list[float]] = {"rewards": []}

    def advantages(self, group: GroupOutcome) -> list[float]:
        self.seen["rewards"] += [c.reward for c in group.candidates]
        return super().advantages(group)

    def baselines(self) -> Mapping[str, Any]:
        return self.seen

    def restore_baselines(self, baselines: Mapping[str, Any]) -> None:
        self.seen = {"rewards": list(baselines.get("rewards", []))}


@asynccontextmanager
async def learners_under(algorithm: type, model: Path, folder: Path) -> AsyncGenerator[Learners]:
    kind = f"{__name__}:{algorithm.__name__}"
    spec = job_spec(model, algorithm={"kind": kind, "group_size": 4})
    learners = await Learners.load(spec, folder, device="cpu", threads=1)
    try:
        yield learners
    finally:
        learners.close()


async def test_baselines_when_the_next_step_is_credited_meanwhile_then_a_checkpoint_has_its_own(
    tiny_model: Path, tmp_path: Path
) -> None:
    async with learners_under(Summing, tiny_model, tmp_path) as learners:
        learners.credit("shared", groups_of_step(0))
        of_step = learners.baselines()
        count = len(of_step["rewards"])
        learners.credit("shared", groups_of_step(1))
        assert len(of_step["rewards"]) == count > 0
        assert len(learners.baselines()["rewards"]) > count


class Faulty(Summing):
    """Its ``baselines`` raises, exits, or gives what nobody can copy; nothing can be restored."""

    fault = ""

    def baselines(self) -> Mapping[str, Any]:
        if self.fault == "raises":
            raise KeyError("rewards")
        if self.fault == "exits":
            sys.exit(3)
        return {"rewards": (reward for reward in self.seen["rewards"])}

    def restore_baselines(self, baselines: Mapping[str, Any]) -> None:
        self.seen = {"rewards": baselines["prizes"]}


@pytest.mark.parametrize("fault", ["raises", "exits", "no copy"])
async def test_baselines_when_the_algorithms_own_code_fails_then_the_job_ends_and_names_it(
    tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    monkeypatch.setattr(Faulty, "fault", fault)
    async with learners_under(Faulty, tiny_model, tmp_path) as learners:
        with pytest.raises(JobFailedError, match="algorithm 'Faulty': baselines raised"):
            learners.baselines()


async def test_restore_when_the_algorithms_own_code_fails_then_the_job_ends_and_names_it(
    tiny_model: Path, tmp_path: Path
) -> None:
    words = "restore_baselines raised KeyError: 'prizes' .*in restore_baselines"
    async with learners_under(Faulty, tiny_model, tmp_path) as learners:
        with pytest.raises(JobFailedError, match=words):
            learners.restore(learners.states(), {"rewards": []})
