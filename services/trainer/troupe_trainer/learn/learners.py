"""The learners of one job, one for each policy, all on one dedicated thread.

Owns credit assignment and the hand-over to torch, so that the event loop keeps answering while a
step is computed. Waits for nothing but that thread.
"""

import asyncio
import copy
import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import torch
from transformers.utils.logging import disable_progress_bar

from troupe.algorithms.algorithm import Algorithm, Remembering, credits_by_ticket, hook_raised
from troupe.algorithms.load import load_algorithm
from troupe.api.records.v1 import records_pb2 as pb
from troupe.durable import replace_file
from troupe.episodes.build import refuse_what_cannot_spread
from troupe.errors import InvalidArgumentError, JobFailedError, TroupeError
from troupe.ids import counted
from troupe.runtime.faults import reached
from troupe.seeds import derive_seed
from troupe.spec.job import JobSpec
from troupe.spec.sizes import asleep_bytes
from troupe_trainer.learn.called_loss import is_of_the_machine
from troupe_trainer.learn.collector import Arrived, Batch, LearnAhead
from troupe_trainer.learn.credit import AssignedCredit, CreditAssigner
from troupe_trainer.learn.critics import Critics
from troupe_trainer.learn.learner import Learner, LearnOutcome, NonFiniteError
from troupe_trainer.learn.loading import fitted, learner_of
from troupe_trainer.model.kernels import AttentionChoice
from troupe_trainer.model.learner_state import LearnerState, state_of
from troupe_trainer.model.model import PolicyModel
from troupe_trainer.model.ranks.group import LOAD, SOLO, Ranks
from troupe_trainer.model.relocation import free_cache
from troupe_trainer.samples import CreditedGroup

_T = TypeVar("_T")
AHEAD_S = 0.5
"""After so long of learning the ledger is looked at again: the round may be over."""


@dataclass(frozen=True, slots=True)
class Learned:
    """One step of all policies: trained groups and their outcomes, by policy.

    ``ahead_s``: for how long it was learnt while its round was still being played. ``is_idle``: it
    was no policy's turn to learn, or all are frozen.
    """

    credited: Mapping[str, list[CreditedGroup]]
    outcomes: Mapping[str, LearnOutcome]
    ahead_s: float = 0.0
    is_idle: bool = False


@dataclass(slots=True)
class _Begun:
    """A step that was begun while its round is played: credited groups by policy and id."""

    step: int
    credited: defaultdict[str, dict[str, CreditedGroup]] = field(
        default_factory=lambda: defaultdict(dict)
    )
    seconds: float = 0.0


class Learners:
    """The learners of one trainer. Make it with ``Learners.load``.

    ``policy`` is the only one that it learns; "" learns every policy of the job.
    """

    def __init__(
        self, spec: JobSpec, algorithm: Algorithm, run_dir: Path, *, policy: str = ""
    ) -> None:
        self.policy = policy
        self._spec = spec
        self._algorithm = algorithm
        self._run_dir = run_dir
        self._thread = ThreadPoolExecutor(1, "learner")
        self.by_policy: dict[str, Learner] = {}
        self._critics: Critics | None = None
        self._overlaps = False
        self._device = torch.device("cpu")
        self._begun = _Begun(-1)

    @classmethod
    async def load(
        cls,
        spec: JobSpec,
        run_dir: Path,
        *,
        device: str,
        threads: int,
        attention: AttentionChoice = "auto",
        ranks: Ranks = SOLO,
        policy: str = "",
        held_bytes: int = 0,
        is_colocated: bool = False,
        is_compiled: bool = False,
    ) -> "Learners":
        """Load the models; raises InvalidArgumentError or JobFailedError.

        ``is_colocated``: a server has the device while a round is played.
        """
        torch.set_num_threads(threads)
        disable_progress_bar()
        where = resolve_device(device)
        spec = fitted(spec, where, ranks, taken_bytes=asleep_bytes(spec) if is_colocated else 0)
        learners = cls(spec, load_algorithm(spec.algorithm), run_dir, policy=policy)
        refuse_what_cannot_spread(spec, learners._algorithm, ranks.size)
        if is_compiled and ranks.size > 1:
            raise InvalidArgumentError(
                f"TROUPE_TRAINER_COMPILED is on and the trainer has {ranks.size} ranks: compiled "
                "layers were never sharded. Leave the setting out, or take one rank."
            )
        ranks.tell((policy, LOAD, (spec.model_dump_json(), attention)))
        for name in [policy] if policy else sorted(spec.policies):
            learners.by_policy[name] = await learners.on_thread(
                lambda p=name: learner_of(
                    p,
                    spec,
                    learners._algorithm,
                    device=where,
                    attention=attention,
                    shares=learners._models(),
                    ranks=ranks,
                    held_bytes=held_bytes,
                    is_compiled=is_compiled,
                )
            )
        await learners.on_thread(lambda: learners._check_folder(ranks))
        learners._overlaps = not is_colocated and _overlaps(spec, learners._algorithm, where, ranks)
        learners._device = torch.device(where)
        view = learners._algorithm.needs.values
        if view is not None:
            learners._critics = await learners.on_thread(
                lambda: Critics(spec, view, learners.by_policy, device=where)
            )
        torch.manual_seed(derive_seed(spec.seed, "learner"))
        return learners

    def _check_folder(self, ranks: Ranks) -> None:
        """Raise InvalidArgumentError where ranks can't write their parts of full weights."""
        if ranks.size == 1 or all(learner.model.is_lora for learner in self.by_policy.values()):
            return
        seen = self._run_dir / f".seen-{self.policy}-{uuid.uuid4().hex[:12]}"
        replace_file(seen, "")
        try:
            blind = ranks.num_blind(seen)
        finally:
            seen.unlink(missing_ok=True)
        if blind:
            raise InvalidArgumentError(
                f"{blind} of the trainer's {ranks.size} ranks do not see the run folder "
                f"{self._run_dir}, to which each writes its part of full weights; mount it at this "
                "path on every node, or set trainer.gpus to the GPUs of one node",
                pointer="/trainer/gpus",
            )

    def _models(self) -> list[PolicyModel]:
        models = [learner.model for learner in self.by_policy.values()]
        return models + [model.teacher for model in models if model.teacher is not None]

    @property
    def min_candidates(self) -> int:
        """The fewest candidates of a group that the algorithm learns from."""
        return self._algorithm.needs.candidates

    async def on_thread(self, work: Callable[[], _T]) -> _T:
        """Run ``work`` on torch's thread."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    async def leave_device(self) -> None:
        """Keep everything in the host's memory, so that the device is free. Idempotent."""
        await self.on_thread(lambda: self._relocate(torch.device("cpu")))

    async def enter_device(self) -> None:
        """Bring everything back. Idempotent."""
        await self.on_thread(lambda: self._relocate(self._device))

    def _relocate(self, device: torch.device) -> None:
        for part in (*self.by_policy.values(), *([self._critics] if self._critics else [])):
            part.relocate(lambda tensor: tensor.to(device))
        free_cache(self._device)

    @property
    def while_played(self) -> LearnAhead | None:
        """``ahead``; None where the job's steps begin when their round is over."""
        return self.ahead if self._overlaps else None

    async def ahead(self, arrived: Arrived) -> bool:
        """Learn from windows of finished tickets while the others are played; no weight moves.

        For about ``AHEAD_S``. False where there is none, or where what is early has no more room.
        """
        began = time.monotonic()
        if arrived.step != self._begun.step:
            await self.on_thread(lambda: self._begin(arrived.step))
        is_learning = False
        while time.monotonic() < began + AHEAD_S and (found := self._next_window(arrived)):
            policy, window, tickets = found
            groups = arrived.groups_of(policy, tickets)
            await self.on_thread(lambda p=policy, w=window, g=groups: self._ahead(p, w, g))
            is_learning = True
        self._begun.seconds += time.monotonic() - began if is_learning else 0.0
        return is_learning

    def _next_window(self, arrived: Arrived) -> tuple[str, int, Sequence[int]] | None:
        """A policy, the window of tickets that it may learn from now, and their positions."""
        for policy, learner in self.by_policy.items():
            if self._spec.learns(policy, arrived.step):
                window = learner.next_window(arrived.num_tickets, arrived.finished)
                if window is not None:
                    return policy, window, learner.tickets_of(window, arrived.num_tickets)
        return None

    def _begin(self, step: int) -> None:
        """Forget what was begun of another step."""
        self._begun = _Begun(step)
        for learner in self.by_policy.values():
            learner.discard_ahead()

    def _ahead(self, policy: str, window: int, groups: Sequence[pb.Group]) -> None:
        credited = self.credit(policy, groups)
        self._begun.credited[policy].update({g.record.group_id: g for g in credited})
        self.by_policy[policy].ahead(window, self._learnt_from(credited))
        reached("trainer.summed_ahead", self._begun.step)

    async def learn(self, batch: Batch) -> Learned:
        """One training step of every policy.

        Raises:
            NonFiniteError: the groups at fault are in ``nan-step-<k>.pb`` of the run folder, if it
                takes them.
        """
        return await self.on_thread(lambda: self._learn(batch))

    def states(self, folder: Path | None = None) -> dict[str, LearnerState]:
        """Learner states to checkpoint; call it on the thread.

        With a ``folder`` ranks write their parts of them to it; without one rank 0 has all.
        """
        states = {
            policy: learner.state() if folder is None else learner.state_in(folder / policy)
            for policy, learner in self.by_policy.items()
        }
        return states | (self._critics.states() if self._critics is not None else {})

    def baselines(self) -> Mapping[str, Any]:
        """A copy of the algorithm's state between steps, to checkpoint while it learns on; call it
        on the thread.

        Raises JobFailedError where the algorithm's own code fails, or gives what can't be copied.
        """
        if not isinstance(self._algorithm, Remembering):
            return {}
        return self._asked("baselines")

    def restore(
        self, states: Mapping[str, LearnerState], baselines: Mapping[str, Any] | None = None
    ) -> None:
        """Continue from ``states`` and ``baselines``; call it on the thread.

        Raises JobFailedError where the algorithm's own code fails.
        """
        self._begin(-1)
        if isinstance(self._algorithm, Remembering):
            self._asked("restore_baselines", baselines or {})
        for policy, learner in self.by_policy.items():
            learner.restore(state_of(states, policy))
        if self._critics is not None:
            self._critics.restore(states)

    def _asked(self, hook: str, *arguments: Any) -> Any:
        """A copy of what a hook gives. What its code raises would be raised again by every
        restart, so it ends the job."""
        try:
            return copy.deepcopy(getattr(self._algorithm, hook)(*arguments))
        except (Exception, SystemExit) as error:  # the latter would end the process
            if isinstance(error, TroupeError) or is_of_the_machine(error):
                raise
            raise JobFailedError(f"{hook_raised(self._algorithm, hook, error)}.") from error

    def close(self) -> None:
        """End the thread after its current work."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _learn(self, batch: Batch) -> Learned:
        begun = self._begun if self._begun.step == batch.step else _Begun(batch.step)
        credit = self._credit_step(batch, begun)
        values = self._critics.learn(credit.lessons) if self._critics is not None else {}
        outcomes: dict[str, LearnOutcome] = {}
        for policy, groups in credit.groups.items():
            learnt = self._learnt_from(groups)
            try:
                outcomes[policy] = self.by_policy[policy].step(
                    learnt, batch.step, is_flat=bool(groups) and not learnt
                )
            except NonFiniteError as error:
                kept = self._keep_offenders(batch.step, error)
                message = f"Step {counted(batch.step)} stopped. {error.message} {kept}"
                raise NonFiniteError(message, error.groups) from error
            outcome = outcomes[policy]
            outcomes[policy] = replace(outcome, metrics=outcome.metrics | values.get(policy, {}))
        self._take_over(batch.step + 1)
        self._begun = _Begun(-1)
        is_idle = not any(self._spec.learns(policy, batch.step) for policy in self.by_policy)
        return Learned(credit.groups, outcomes, begun.seconds, is_idle)

    def _keep_offenders(self, step: int, error: NonFiniteError) -> str:
        """Write the groups at fault to a file; says where, or why not: the error matters more."""
        mark = f"{self.policy}-" if self.policy else ""
        path = self._run_dir / f"nan-{mark}step-{step}.pb"
        records = pb.Episode(groups=[group.record for group in error.groups])
        try:
            replace_file(path, records.SerializeToString())
        except OSError as refusal:
            return f"They could not be kept in {path} ({refusal.strerror})."
        return f"They are in {path} (a troupe.api.records.v1.Episode)."

    def _credit_step(self, batch: Batch, begun: _Begun) -> AssignedCredit:
        """Credit of all groups; where a ticket's depends on itself alone, that of ``begun``."""
        learns = self._spec.learns
        groups = {p: gs if learns(p, batch.step) else [] for p, gs in batch.groups.items()}

        def early(policy: str, group: pb.Group) -> CreditedGroup | None:
            credited = begun.credited[policy].get(group.group_id)
            return credited if credited is not None and credited.record is group else None

        late = {p: [g for g in gs if early(p, g) is None] for p, gs in groups.items()}
        credit = self._assigner().assign(late)
        rest = {policy: iter(credited) for policy, credited in credit.groups.items()}
        whole = {p: [early(p, g) or next(rest[p]) for g in gs] for p, gs in groups.items()}
        return AssignedCredit(whole, credit.lessons)

    def _take_over(self, version: int) -> None:
        """Give past versions that are due at ``version`` their policy's present weights."""
        for name, learner in self.by_policy.items():
            past = self._spec.policies[name].past
            if past is not None and past.every and version % past.every == 0:
                present = self.by_policy[past.of].model.trainable()
                learner.model.load_trainable(
                    {tensor: weight.detach() for tensor, weight in present.items()}
                )

    def credit(self, policy: str, groups: Sequence[pb.Group]) -> list[CreditedGroup]:
        """Assign credit to one policy's groups alone; call it on the thread."""
        return self._assigner().assign({policy: groups}).groups[policy]

    def _assigner(self) -> CreditAssigner:
        return CreditAssigner(self._spec, self._algorithm, self.by_policy, self._critics)

    def _learnt_from(self, groups: list[CreditedGroup]) -> list[CreditedGroup]:
        if not self._spec.algorithm.filters.zero_variance:
            return groups
        return [group for group in groups if group.has_signal]


def _overlaps(spec: JobSpec, algorithm: Algorithm, device: str, ranks: Ranks) -> bool:
    """As the spec says, else on an accelerator; where neither ranks nor the algorithm forbid it."""
    is_wanted = spec.batch.overlap
    if is_wanted is None:
        is_wanted = torch.device(device).type != "cpu"
    return is_wanted and ranks.size == 1 and credits_by_ticket(algorithm, spec.algorithm)


def resolve_device(device: str) -> str:
    """Resolve "auto" to the available device."""
    if device == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    return device
