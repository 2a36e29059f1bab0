"""The kill matrix: who is hit, where the system stands at that moment, and how it is hit."""

from collections.abc import Iterator
from dataclasses import dataclass

Role = str
ROLES = ("router", "rollout", "env", "sandbox", "trainer", "redis")
COMPONENTS = {
    "router": "router",
    "rollout": "rollout-shared-0",
    "env": "env-0",
    "trainer": "trainer-0",
    "redis": "redis",
}


@dataclass(frozen=True)
class Phase:
    """A moment of a job: the fault point at which one process then stands.

    ``from_step``: the point is armed when this step's round opens; -1: before the job begins.
    """

    name: str
    point: str
    from_step: int = -1

    @property
    def stander(self) -> Role:
        """Whose process reaches the point."""
        return self.point.partition(".")[0]


PHASES = (
    Phase("opening a step", "router.round_opened@train-00001"),
    Phase("mid-generate", "rollout.generating", from_step=1),
    Phase("mid-env-step", "env.stepping", from_step=1),
    Phase("before a stream append", "router.ticket_completing@train-00001"),
    Phase("after a stream append", "router.ticket_completed@train-00001"),
    Phase("mid-record", "router.round_recording@train-00001"),
    Phase("idle, groups are in", "trainer.collected@1"),
    Phase("mid-learn", "trainer.learning@1"),
    Phase("mid-checkpoint", "trainer.checkpoint_staged@2"),
    Phase("checkpoint written", "trainer.checkpoint_there@2"),
    Phase("mid-push, staging", "rollout.weights_staged@2"),
    Phase("mid-push, canary", "rollout.canary_scored@2"),
    Phase("mid-push, staged on all", "trainer.weights_staged@2"),
    Phase("mid-push, activating", "rollout.activated@2"),
    Phase("mid-push, active on all", "trainer.weights_active@2"),
    Phase("version committed", "trainer.version_committed@2"),
    Phase("mid-eval", "router.ticket_completing@eval-00003"),
    Phase("at the last step", "trainer.exported"),
)
BY_NAME = {phase.name: phase for phase in PHASES}
BY_NAME["idle, a step is played"] = Phase("idle, a step is played", "trainer.version_committed@1")
FULL = "full disk"
SILENT = "never answers"
SANDBOX_PHASE = Phase("mid-program", "env.sandbox_asked", from_step=1)


@dataclass(frozen=True)
class Case:
    """``how``: kill (SIGKILL), drain (SIGTERM), zombie (SIGSTOP beyond every lease, SIGCONT), full
    disk (ENOSPC for some seconds), or never answers (SIGSTOP for good). Of a link, such as
    ``router:redis``: partition, half-open, resets, delay, slow. Other ways: ``pressure.py``.

    ``also``: a second role that is killed in the same moment.
    """

    victim: Role
    phase: Phase
    how: str = "kill"
    also: Role = ""

    @property
    def is_process(self) -> bool:
        """Whether the victim is a process, and no link or stream."""
        return self.victim in COMPONENTS

    @property
    def id(self) -> str:
        """A name for the test and for the table."""
        second = f"+{self.also}" if self.also else ""
        return f"{self.how} {self.victim}{second} {self.phase.name}".replace(" ", "-")


def _drains() -> Iterator[Case]:
    moments = {
        "router": ("before a stream append", "mid-eval"),
        "rollout": ("mid-generate", "mid-push, activating"),
        "env": ("mid-env-step",),
        "trainer": ("mid-learn", "mid-checkpoint", "mid-push, staged on all"),
        "redis": ("before a stream append",),
    }
    for victim, names in moments.items():
        yield from (Case(victim, BY_NAME[name], "drain") for name in names)


def _zombies() -> Iterator[Case]:
    moments = {
        "router": ("before a stream append", "opening a step"),
        "rollout": ("mid-generate", "mid-push, staging"),
        "env": ("mid-env-step",),
        "trainer": ("mid-learn", "mid-push, staged on all", "version committed"),
        "redis": ("before a stream append",),
    }
    for victim, names in moments.items():
        yield from (Case(victim, BY_NAME[name], "zombie") for name in names)


def _pairs() -> Iterator[Case]:
    for victim, also, name in (
        ("trainer", "rollout", "mid-push, staged on all"),
        ("router", "redis", "before a stream append"),
        ("trainer", "redis", "mid-checkpoint"),
        ("rollout", "env", "mid-generate"),
        ("router", "trainer", "mid-learn"),
    ):
        yield Case(victim, BY_NAME[name], "kill", also)


def _kills() -> Iterator[Case]:
    """First whoever does the work of the moment, then everybody else at that moment."""
    yield from (Case(phase.stander, phase) for phase in PHASES)
    for role in ("redis", "trainer", "rollout", "router", "env"):
        yield from (Case(role, phase) for phase in PHASES if phase.stander != role)


def _full_disks() -> Iterator[Case]:
    yield Case("router", Phase("writing the episode log", "router.disk@episodes.jsonl"), FULL)
    yield Case("router", Phase("writing the metrics", "router.disk@metrics.jsonl"), FULL)
    yield Case("trainer", Phase("writing a checkpoint", "trainer.checkpoint_staged@2"), FULL)
    yield Case("trainer", Phase("writing the last", "trainer.checkpoint_staged@3"), FULL)


KILLS = tuple(_kills())
MATRIX = (*KILLS[:18], *_full_disks(), *_pairs(), *_drains(), *_zombies(), *KILLS[18:])

SANDBOX = (
    Case("sandbox", SANDBOX_PHASE),
    Case("sandbox", SANDBOX_PHASE, SILENT),
    Case("env", SANDBOX_PHASE),
)
"""On a job whose judge runs programs."""

_PROGRAM_POINTS = {
    "program begins": "env.program_started",
    "1st call answered": "env.program_answered@1",
    "2nd call answered": "env.program_answered@2",
    "4th call answered": "env.program_answered@4",
    "in a replay": "env.program_replayed",
}
PROGRAMS = tuple(
    Case(role, Phase(f"{name} of step {step}", point, from_step=step))
    for step in range(3)
    for role in ("env", "router")
    for name, point in _PROGRAM_POINTS.items()
)
"""On a job whose agents are those of an agent program, which runs on at that moment."""
QUICK_PROGRAMS = (PROGRAMS[3], PROGRAMS[14], PROGRAMS[17])

# Of any step: a round may be over before anything of it was summed.
SUMMING = Phase("mid-sum, the round is played", "trainer.summed_ahead")
OVERLAP = (
    Case("trainer", SUMMING),
    Case("trainer", SUMMING, "drain"),
    Case("redis", SUMMING),
    Case("router", SUMMING),
)
"""On a job that learns while a round is played, compared with one that does not."""
_BESIDE = Phase("evaluated in a round's tail", "router.ticket_completing@eval-00000")
IN_TAIL = (
    *(Case(role, _BESIDE) for role in ("trainer", "router", "rollout", "redis")),
    Case("router", Phase("evaluation in the file", "router.evaluation_in_file@eval-00000")),
)
"""An evaluation is played beside its round's tail and the learning."""

PARTITION, DELAY, RESETS, SLOW = "partition", "delay", "resets", "slow"
HALF_OPEN = "half-open"
LINKS = {
    "router:redis": "before a stream append",
    "trainer:redis": "mid-learn",
    "router:rollout": "mid-generate",
    "router:env": "mid-env-step",
    "trainer:rollout": "mid-push, staging",
    "rollout:router": "mid-generate",
    "env:router": "mid-env-step",
    "trainer:router": "mid-learn",
}
"""Who dials whom, and the moment at which there is something under way between them."""

_BUSIEST = ("router:redis", "router:rollout", "trainer:rollout")
NETWORK = tuple(
    Case(link, BY_NAME[LINKS[link]], how)
    for how, links in (
        (PARTITION, LINKS),
        (HALF_OPEN, LINKS),
        (RESETS, LINKS),
        (DELAY, ("trainer:redis", *_BUSIEST)),
        (SLOW, _BUSIEST),
    )
    for link in links
)
"""On a platform whose rooms talk through a proxy."""

DUPLICATED, REORDERED = "duplicated", "reordered"
REFUSING, STORM = "maxmemory", "connection storm"
MEMORY, FILES = "out of memory", "out of files"
SUPERSEDED = "superseded"
STREAMS = tuple(
    Case(stream, BY_NAME[name], how)
    for how in (DUPLICATED, REORDERED)
    for stream, name in (("tickets", "opening a step"), ("groups", "idle, a step is played"))
)
"""Entries of a job's streams, while nobody has read them yet."""

SHORTAGES = (
    Case("redis", BY_NAME["before a stream append"], REFUSING),
    Case("redis", BY_NAME["mid-learn"], REFUSING),
    Case("redis", BY_NAME["mid-generate"], STORM),
    Case("router", BY_NAME["mid-generate"], STORM),
    Case("trainer", BY_NAME["mid-learn"], MEMORY),
    Case("rollout", BY_NAME["mid-generate"], MEMORY),
    Case("env", BY_NAME["mid-env-step"], MEMORY),
    Case("router", BY_NAME["before a stream append"], FILES),
    Case("rollout", BY_NAME["mid-generate"], FILES),
    Case("env", BY_NAME["mid-env-step"], FILES),
)
"""What runs out beside the disk."""

SECONDS = (
    Case("trainer", BY_NAME["mid-learn"], SUPERSEDED),
    Case("trainer", BY_NAME["mid-push, staged on all"], SUPERSEDED),
    Case("router", BY_NAME["before a stream append"], SUPERSEDED),
    Case("router", BY_NAME["mid-record"], SUPERSEDED),
)
"""Frozen until a second process of the role has taken over, and then woken."""

FORWARD, BACK = "clock forward", "clock back"
CLOCKS = tuple(
    Case(role, BY_NAME[name], how)
    for how in (FORWARD, BACK)
    for role, name in (
        ("router", "before a stream append"),
        ("trainer", "mid-learn"),
        ("rollout", "mid-generate"),
        ("env", "mid-env-step"),
        ("redis", "before a stream append"),
    )
)
"""By more than an hour, until the job ends."""

FAILOVER, LOSSY, CUT, EMPTIED = "failover", "lossy failover", "writes cut", "emptied"
FAILOVERS = (
    Case("redis", BY_NAME["before a stream append"], FAILOVER),
    Case("redis", BY_NAME["mid-learn"], FAILOVER),
    Case("redis", BY_NAME["mid-push, staged on all"], LOSSY),
    Case("redis", BY_NAME["before a stream append"], LOSSY),
)
"""To a replica that has all that was answered, or (lossy) lacks the writes of some moments."""
LOST_WRITES = (
    *(
        Case("redis", BY_NAME[name], CUT)
        for name in (
            "opening a step",
            "before a stream append",
            "mid-record",
            "mid-learn",
            "mid-checkpoint",
            "mid-push, staged on all",
            "version committed",
            "mid-eval",
            "at the last step",
        )
    ),
    *(
        Case("redis", BY_NAME[name], EMPTIED)
        for name in ("mid-record", "mid-learn", "version committed")
    ),
)
"""The same server without its last answered writes, as a power cut under ``everysec`` leaves it, or
without anything."""

NO_ROOM, LOW_ROOM = "no room", "little room"
DISKS = (
    *(
        Case("redis", BY_NAME[name], NO_ROOM)
        for name in (
            "opening a step",
            "before a stream append",
            "mid-record",
            "mid-learn",
            "mid-push, staged on all",
            "at the last step",
        )
    ),
    Case("redis", BY_NAME["mid-learn"], LOW_ROOM),
)
"""A file system with the run folders and Redis' data, filled for 15 s by a file of others."""
REDIS_ELSEWHERE = tuple(
    Case(role, BY_NAME[name], NO_ROOM)
    for role, name in (
        ("router", "mid-record"),
        ("env", "mid-env-step"),
        ("trainer", "mid-learn"),
        ("trainer", "checkpoint written"),
        ("rollout", "mid-push, staging"),
        ("trainer", "at the last step"),
    )
)
"""A full file system with the run folders alone: Redis goes on, so the one named meets it first."""

LOSS = "packets lost"
LOSSES = tuple(
    Case(role, BY_NAME[name], LOSS)
    for role, name in (
        ("redis", "before a stream append"),
        ("redis", "mid-learn"),
        ("router", "mid-generate"),
        ("rollout", "mid-generate"),
        ("rollout", "mid-push, staging"),
        ("env", "mid-env-step"),
    )
)
"""One packet in ten, to and from a server, until the job ends."""

POWER, TORN = "power cut", "torn power cut"
_POWERLESS = (
    "opening a step",
    "before a stream append",
    "mid-record",
    "mid-learn",
    "mid-checkpoint",
    "checkpoint written",
    "mid-push, active on all",
    "version committed",
    "mid-eval",
    "at the last step",
)
POWER_CUTS = tuple(Case("machine", BY_NAME[n], how) for how in (POWER, TORN) for n in _POWERLESS)
"""Every process ends in one moment and what was not synced is lost, all of it or (torn) some."""

ALL = (
    *MATRIX,
    *SANDBOX,
    *PROGRAMS,
    *OVERLAP,
    *IN_TAIL,
    *NETWORK,
    *STREAMS,
    *SECONDS,
    *SHORTAGES,
    *CLOCKS,
    *FAILOVERS,
    *LOST_WRITES,
    *LOSSES,
    *POWER_CUTS,
    *DISKS,
    *REDIS_ELSEWHERE,
)
"""What `make chaos` records."""

ALIVE = frozenset({"zombie", FULL, MEMORY, FILES, SUPERSEDED, STORM, REFUSING})
"""Ways after which the same process may serve again."""

QUICK = tuple(
    Case(victim, BY_NAME[name], how)
    for victim, name, how in (
        ("trainer", "mid-checkpoint", "kill"),
        ("trainer", "mid-push, active on all", "kill"),
        ("rollout", "mid-generate", "kill"),
        ("env", "mid-env-step", "kill"),
        ("router", "before a stream append", "kill"),
        ("router", "mid-record", "kill"),
        ("redis", "mid-learn", "kill"),
    )
)
"""What every commit proves: each role at the moment at which it holds most."""

QUICK_NETWORK = Case("router:redis", BY_NAME["before a stream append"], RESETS)
QUICK_DISK = Case("redis", BY_NAME["mid-learn"], NO_ROOM)
QUICK_STREAM = Case("groups", BY_NAME["idle, a step is played"], DUPLICATED)
QUICK_POWER_CUT = Case("machine", BY_NAME["mid-checkpoint"], POWER)
