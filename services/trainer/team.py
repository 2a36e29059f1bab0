"""The learners of one job, one for each policy, on one thread of their own.

Owns credit assignment and the hand-over to torch, so that the event loop goes on answering while
a step is computed. Never waits for anything but that thread.
"""

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import torch
from transformers.utils.logging import disable_progress_bar

from services.trainer.collector import Batch
from services.trainer.learner import Learner, LearnerState, LearnOutcome, NonFiniteError
from services.trainer.samples import CreditedGroup, credit
from troupe import plugins
from troupe.algorithms.contract import Algorithm
from troupe.algorithms.outcomes import group_outcome
from troupe.api.records.v1 import records_pb2 as pb
from troupe.seeds import derive_seed
from troupe.spec.job import JobSpec

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Learned:
    """One step of all policies: what was trained and what came of it, by policy."""

    credited: Mapping[str, list[CreditedGroup]]
    outcomes: Mapping[str, LearnOutcome]


class Team:
    """All learners of a job. Make it with ``Team.load``."""

    def __init__(self, spec: JobSpec, algorithm: Algorithm, run_dir: Path) -> None:
        self._spec = spec
        self._algorithm = algorithm
        self._run_dir = run_dir
        self._thread = ThreadPoolExecutor(1, "learner")
        self.learners: dict[str, Learner] = {}

    @classmethod
    async def load(cls, spec: JobSpec, run_dir: Path, *, device: str, threads: int) -> "Team":
        """Load every policy's model; raises InvalidArgumentError or JobFailedError."""
        torch.set_num_threads(threads)
        disable_progress_bar()
        kind = plugins.load(plugins.ALGORITHMS, spec.algorithm.kind, pointer="/algorithm/kind")
        team = cls(spec, kind(spec.algorithm), run_dir)
        where = resolve_device(device)
        for policy in sorted(spec.policies):
            team.learners[policy] = await team.on_thread(
                lambda p=policy: Learner(p, spec, team._algorithm, device=where)
            )
        torch.manual_seed(derive_seed(spec.seed, "learner"))
        return team

    async def on_thread(self, work: Callable[[], _T]) -> _T:
        """Run ``work`` where torch runs."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    async def learn(self, batch: Batch) -> Learned:
        """One training step of every policy.

        Raises:
            NonFiniteError: the groups at fault are in ``nan-step-<k>.pb`` of the run folder.
        """
        return await self.on_thread(lambda: self._learn(batch))

    def states(self) -> dict[str, LearnerState]:
        """What to checkpoint; call it on the thread."""
        return {policy: learner.state() for policy, learner in self.learners.items()}

    def restore(self, states: Mapping[str, LearnerState]) -> None:
        """Go on from ``states``; call it on the thread."""
        for policy, learner in self.learners.items():
            learner.restore(states[policy])

    def close(self) -> None:
        """End the thread after what it does now."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _learn(self, batch: Batch) -> Learned:
        credited = {p: [self._credit(g) for g in groups] for p, groups in batch.groups.items()}
        outcomes: dict[str, LearnOutcome] = {}
        for policy, groups in credited.items():
            try:
                outcomes[policy] = self.learners[policy].step(groups)
            except NonFiniteError as error:
                path = self._run_dir / f"nan-step-{batch.step}.pb"
                records = pb.Episode(groups=[group.record for group in error.groups])
                path.write_bytes(records.SerializeToString())
                raise NonFiniteError(
                    f"Step {batch.step} stopped. {error.message} They are in {path} (a "
                    "troupe.api.records.v1.Episode).",
                    error.groups,
                ) from error
        return Learned(credited, outcomes)

    def _credit(self, group: pb.Group) -> CreditedGroup:
        advantages = self._algorithm.advantages(group_outcome(group))
        return credit(group, advantages, self._spec.sampling_for(group.agent).temperature)


def resolve_device(device: str) -> str:
    """ "auto" as the device that is there."""
    if device == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    return device
