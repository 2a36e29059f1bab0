"""The Launcher interface: brings an owner's processes (a job's, the platform's) to a wanted set."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

EXIT_CONFIGURATION = 3
"""Exit status of a component whose configuration is wrong: starting it again will not help."""
QUEUED = "Queued"
"""Condition of a component that a cluster's queue holds back. While nothing else halts its job,
of the job's deadlines only limits.queue_timeout_s counts."""
PULLING = "ImagePulling"
"""Condition of a component whose image a node pulls. While nothing else but a queue halts its job,
of the job's deadlines only limits.image_pull_timeout_s counts."""


@dataclass(frozen=True, slots=True)
class Component:
    """One process that should run.

    ``name`` is deterministic inside its owner ("rollout-shared-0"); ``module`` is run with
    ``python -m``, or ``argv`` unchanged when it is set (programs that are not Python); ``env``
    is added to the environment, and ``defaults`` where the environment has no such variable (on
    this machine alone). A component with ``restarts`` False is not restarted after it exits with
    status 0. ``traits`` are facts that a launcher may place it by, such as ``model`` or ``gpus``.

    Example: ``Component("trainer-0", "troupe_trainer", {"TROUPE_TRAINER_JOB_ID": "demo-1"})``.
    """

    name: str
    module: str
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    args: Sequence[str] = ()
    restarts: bool = True
    argv: Sequence[str] = ()
    traits: Mapping[str, str] = field(default_factory=dict[str, str])
    defaults: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True)
class ComponentStatus:
    """The state of one component, as the launcher sees it.

    ``waiting`` is requested and not up yet. ``condition`` is the stable name of a problem
    ("ImagePullFailed"), if there is one; ``detail`` is for people: its last log lines, or what
    keeps it from running and what to do. ``launch_id`` is another one for each process, where the
    launcher begins to count ``restarts`` again after a stop; else empty.
    """

    name: str
    state: Literal["running", "waiting", "restarting", "exited", "failed", "absent"]
    pid: int | None
    restarts: int
    exit_code: int | None
    detail: str = ""
    condition: str = ""
    launch_id: str = ""


class Launcher(Protocol):
    """Level-triggered: call ``reconcile`` at any time, also after the caller was restarted."""

    outlives_caller: bool
    """Whether components go on while nobody reconciles, for the caller's next life to adopt."""

    async def reconcile(self, owner: str, desired: Sequence[Component]) -> list[ComponentStatus]:
        """Start what is missing, adopt what runs, restart what died, stop the rest."""
        ...

    async def stop(self, owner: str, *, grace_s: float) -> None:
        """End every process of the owner: SIGTERM, then SIGKILL after ``grace_s``."""
        ...
