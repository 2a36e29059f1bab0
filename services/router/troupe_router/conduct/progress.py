"""What a job waits for now, and for whom, in numbers and in one sentence.

``explain`` is pure; ``ProgressReader`` gathers its facts from Redis and from the trainer, so any
router can answer for any job. Never changes anything, and never fails a job.
"""

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from redis.asyncio import Redis

from troupe.api.router.v1.router_pb2 import ReplicaKind
from troupe.clients.trainer import TrainerClient, TrainerStatus
from troupe.errors import TroupeError
from troupe.ids import counted, eval_round, train_round
from troupe.runtime.disk_space import DiskSpace
from troupe.runtime.streams.ledger import RoundState, StepLedger
from troupe.runtime.streams.memory import RedisMemory
from troupe.spec.pools import RolloutPool, num_serving, rollout_pools
from troupe_router.jobs.processes import needs
from troupe_router.jobs.record import JobRecord
from troupe_router.members.store import Member, MemberStore
from troupe_router.settings import RouterSettings

Phase = Literal[
    "none", "queue", "launch", "play", "collect", "learn", "publish", "export", "disk", "memory"
]

_TRAINER_PHASES: Mapping[str, Phase] = {
    "load": "launch",
    "collect": "collect",
    "device": "learn",
    "learn": "learn",
    "checkpoint": "learn",
    "evaluation": "play",
    "publish": "publish",
    "export": "export",
    "done": "export",
}
_WORDS: Mapping[Phase, str] = {
    "launch": "the trainer to load the models",
    "collect": "the trainer to collect the groups",
    "learn": "the trainer to learn",
    "play": "the evaluation of its weights",
    "publish": "the new weights to reach every replica",
    "export": "the trainer to export the policies",
}
_ASK_S = 1.0


@dataclass(frozen=True, slots=True)
class Waiting:
    """One job's present phase. ``since`` is in Unix seconds; ``who`` are replica ids or rooms.

    Example: ``Waiting("play", 3, 1.7e9, ("demo-1-rollout-shared-0",), "Step 4 waits for ...")``.
    """

    phase: Phase
    step: int
    since: float
    who: tuple[str, ...]
    sentence: str
    is_overdue: bool = False

    def to_json(self) -> dict[str, Any]:
        """As REST and the events show it: ``for_s`` instead of an instant."""
        shown = asdict(self)
        since = shown.pop("since")
        shown["who"] = list(self.who)
        return {**shown, "for_s": round(max(0.0, time.time() - since), 1) if since else None}


@dataclass(frozen=True, slots=True)
class Facts:
    """All that ``explain`` looks at. ``round`` is the newest round that is open or complete.

    ``wanted`` is how many serving replicas the job wants of each room: "trainer", "env", and the
    rollout pools by name. ``trainer`` is the one that all wait for: of several, the one that is
    furthest behind or that has not answered since ``silent_since``; ``slowest`` names its policy.
    ``is_exported``: every trainer has reported its result, and may have ended.
    """

    job: JobRecord
    members: Sequence[Member] = ()
    wanted: Mapping[str, int] | None = None
    round: RoundState | None = None
    versions: Mapping[str, int] | None = None
    trainer: TrainerStatus | None = None
    now: float = 0.0
    slowest: str = ""
    silent_since: float = 0.0
    is_exported: bool = False


def explain(facts: Facts) -> Waiting:
    """What the job of ``facts`` waits for."""
    job = facts.job
    if job.is_finished:
        return Waiting("none", job.step, 0.0, (), f"The job has {job.state}.")
    if job.state in ("cancelling", "pausing", "paused"):
        is_being = "" if job.state == "paused" else "being "
        word = "cancelled" if job.state == "cancelling" else "paused"
        return Waiting("none", job.step, 0.0, (), f"The job is {is_being}{word}.")
    if job.state == "queued":
        since = job.resumed_at or job.created_at
        return Waiting("queue", job.step, since, (), "The job waits for its turn.")
    if job.state == "launching":
        return _launching(facts)
    return _running(facts)


def _launching(facts: Facts) -> Waiting:
    missing = _missing(facts)
    if missing:
        text = f"The start waits for {', '.join(words for _, words in missing)}."
        return Waiting("launch", 0, facts.job.started_at, tuple(w for w, _ in missing), text)
    late = [p for p in facts.job.spec.policies if p not in (facts.versions or {})]
    text = f"The start waits for the trainer's first version of {', '.join(late) or 'a policy'}."
    return Waiting("launch", 0, facts.job.started_at, ("trainer",), text)


def _running(facts: Facts) -> Waiting:
    job, state = facts.job, facts.round
    if state is not None and state.round_id == eval_round(job.step) and job.step < job.spec.steps:
        state = None if state.is_complete else state
    if state is None or not state.is_complete:
        return _playing(facts, state)
    if facts.is_exported:
        text = "All policies are exported; the router closes the job."
        return Waiting("export", job.step, 0.0, ("router",), text)
    trainer = facts.trainer
    trainer_names = _trainer_names(facts)
    if trainer is None:
        text = f"{_what(job)} waits for {_the_trainer(facts)}, which does not answer."
        return Waiting("learn", job.step, facts.silent_since or facts.now, trainer_names, text)
    if trainer.is_paused:
        text = f"{_what(job)} is held: the job was paused."
        return Waiting("none", job.step, facts.now - trainer.phase_s, trainer_names, text)
    phase = _TRAINER_PHASES.get(trainer.phase, "learn")
    waited_for, words = trainer_names, _WORDS[phase].replace("the trainer", _the_trainer(facts), 1)
    if phase == "publish":
        late = _late(facts, trainer.step + 1, facts.slowest)
        waited_for = late or trainer_names
        words += f": {', '.join(late)}" if late else ""
    text = f"{_what(job)} waits for {words} ({trainer.phase_s:.0f} s so far)."
    return Waiting(phase, job.step, facts.now - trainer.phase_s, waited_for, text)


def _what(job: JobRecord) -> str:
    """What waits: the step, or what comes after the last one: an evaluation, and the export."""
    return f"Step {counted(job.step)}" if job.step < job.spec.steps else "The job's end"


def _playing(facts: Facts, state: RoundState | None) -> Waiting:
    job = facts.job
    missing = _missing(facts)
    if state is None:
        return Waiting("play", job.step, 0.0, ("router",), f"{_what(job)} is about to open.")
    since = max(state.opened_at, job.started_at)  # it may have been open while the job was paused
    left = state.num_tickets - state.num_done - state.num_dropped
    is_eval = state.round_id == eval_round(state.step)
    what = "The evaluation" if is_eval else f"Step {counted(state.step)}"
    text = f"{what} waits for {left} of {state.num_tickets} episodes"
    if missing:
        text += f", and these do not serve: {', '.join(words for _, words in missing)}."
        waited_for = tuple(where for where, _ in missing)
        return Waiting("play", state.step, since, waited_for, text)
    busy = [m.replica for m in facts.members if m.replica.num_in_flight]
    busy = [r for r in busy if r.kind != ReplicaKind.REPLICA_KIND_TRAINER]
    busy.sort(key=lambda replica: -replica.num_in_flight)
    if busy:
        loads = [f"{r.replica_id} ({r.num_in_flight} requests)" for r in busy[:3]]
        text += f"; busiest: {', '.join(loads)}"
    waited_for = tuple(r.replica_id for r in busy[:3]) or ("router",)
    return Waiting("play", state.step, since, waited_for, text + ".")


def _missing(facts: Facts) -> list[tuple[str, str]]:
    """(room or pool, words) of everything that too few replicas serve."""
    missing: list[tuple[str, str]] = []
    pools = {pool.name: pool for pool in rollout_pools(facts.job.spec)}
    for where, count in (facts.wanted or {}).items():
        pool = pools.get(where)
        serving = sum(_serves(member, where, pool) for member in facts.members)
        if serving < count:
            missing.append((where, f"{pool or where} ({serving} of {count} serve)"))
    return missing


def _serves(member: Member, where: str, pool: RolloutPool | None) -> bool:
    replica = member.replica
    if replica.kind == ReplicaKind.REPLICA_KIND_TRAINER:
        return where == "trainer"
    if replica.kind == ReplicaKind.REPLICA_KIND_ENV:
        return where == "env" and replica.is_serving
    return replica.is_serving and pool is not None and num_serving(pool, [member.policies]) > 0


def _late(facts: Facts, version: int, only: str = "") -> tuple[str, ...]:
    """Rollout replicas that do not answer with ``version`` of all their policies yet.

    With ``only``: of this policy.
    """
    late: list[str] = []
    for member in facts.members:
        replica = member.replica
        if replica.kind == ReplicaKind.REPLICA_KIND_ROLLOUT:
            versions = [
                p.active_version
                for p in replica.policies
                if p.policy in facts.job.spec.policies
                and facts.job.spec.trains(p.policy)
                and only in ("", p.policy)
            ]
            if not replica.is_serving or min(versions, default=version) < version:
                late.append(replica.replica_id)
    return tuple(late)


def _the_trainer(facts: Facts) -> str:
    return f"the trainer of policy '{facts.slowest}'" if facts.slowest else "the trainer"


def _trainer_names(facts: Facts) -> tuple[str, ...]:
    """The replica that all wait for, as far as it is known."""
    members = [m for m in facts.members if not facts.slowest or facts.slowest in m.policies]
    return _names(members, ReplicaKind.REPLICA_KIND_TRAINER) or ("trainer",)


def _names(members: Sequence[Member], kind: ReplicaKind) -> tuple[str, ...]:
    return tuple(m.replica.replica_id for m in members if m.replica.kind == kind)


def _place(trainer: TrainerStatus | None) -> tuple[int, int]:
    """How far a trainer is; one that does not answer is behind all."""
    if trainer is None:
        return -1, 0
    phases = list(_TRAINER_PHASES)
    return trainer.step, phases.index(trainer.phase) if trainer.phase in phases else 0


async def _at_work(job: JobRecord, ledger: StepLedger) -> list[str]:
    """The policies whose trainers the job waits for: one that has reported its result may end."""
    names = job.spec.trainers()
    if job.step < job.spec.steps:
        return list(names)
    return [policy for policy in names if await ledger.result((policy,)) is None]


class ProgressReader:
    """Reads the progress of jobs."""

    def __init__(
        self,
        redis: Redis,
        members: MemberStore,
        settings: RouterSettings,
        disk: DiskSpace,
        memory: RedisMemory,
    ) -> None:
        self._redis = redis
        self._members = members
        self._settings = settings
        self._disk = disk
        self._memory = memory
        self._silent: dict[str, dict[str, float]] = {}
        """By job: the trainers, by policy, that do not answer, and since when."""

    async def look(self, job: JobRecord) -> Waiting:
        """What ``job`` waits for; takes about a second at most.

        Raises:
            UnavailableError: Redis does not answer.
        """
        if not job.is_active:
            self._silent.pop(job.job_id, None)
            return explain(Facts(job))
        if self._disk.is_short and (shortage := self._disk.shortage) is not None:
            return Waiting("disk", job.step, shortage.began_at, ("disk",), shortage.sentence)
        if self._memory.is_short and (shortage := self._memory.shortage) is not None:
            return Waiting("memory", job.step, shortage.began_at, ("redis",), shortage.sentence)
        ledger = StepLedger(self._redis, job.job_id)
        wanted = needs(job.spec, self._settings)
        facts = Facts(
            job,
            members=await self._members.of_job(job.job_id),
            wanted={"trainer": len(wanted.trainers), "env": wanted.envs, **wanted.rollouts},
            round=await self._round(ledger, job.step) if job.state == "running" else None,
            versions=await ledger.versions(),
            now=time.time(),
        )
        if facts.round is not None and facts.round.is_complete:
            facts = await self._with_trainers(facts, ledger)
        else:
            self._silent.pop(job.job_id, None)
        waiting = explain(facts)
        limit_s = job.spec.limits.phase_deadline_s
        overdue = bool(waiting.since) and facts.now - waiting.since > limit_s
        return replace(waiting, is_overdue=overdue and waiting.phase not in ("none", "queue"))

    async def _round(self, ledger: StepLedger, step: int) -> RoundState | None:
        """The step's round, or the evaluation before it while that is the newest."""
        train = await ledger.round(train_round(step))
        return train or await ledger.round(eval_round(step))

    async def _with_trainers(self, facts: Facts, ledger: StepLedger) -> Facts:
        """Add the trainer that is furthest behind, of those that have not reported a result."""
        job, members = facts.job, facts.members
        names = await _at_work(job, ledger)
        asked = [
            self._ask_trainer([m for m in members if not policy or policy in m.policies])
            for policy in names
        ]
        answers = dict(zip(names, await asyncio.gather(*asked), strict=True))
        now, known = time.time(), self._silent.pop(job.job_id, {})
        silent = {p: known.get(p, now) for p, answer in answers.items() if answer is None}
        if silent:
            self._silent[job.job_id] = silent
        if not names:
            return replace(facts, is_exported=True, now=now)
        slowest = min(names, key=lambda policy: _place(answers[policy]))
        return replace(
            facts,
            trainer=answers[slowest],
            slowest=slowest,
            silent_since=silent.get(slowest, 0.0),
            now=now,
        )

    async def _ask_trainer(self, members: Sequence[Member]) -> TrainerStatus | None:
        for member in members:
            if member.replica.kind != ReplicaKind.REPLICA_KIND_TRAINER:
                continue
            client = TrainerClient(member.replica.address, retry_for_s=0.0)
            try:
                return await client.progress(timeout_s=_ASK_S)
            except TroupeError:
                continue
            finally:
                await client.close()
        return None
