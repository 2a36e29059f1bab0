"""REST models of a job's progress: what it waits for, and the open round."""

from typing import Literal

from troupe.clients.rest.models.base import Document
from troupe.clients.rest.models.jobs import JobState


class WaitingDocument(Document):
    """What a job waits for now."""

    phase: Literal[
        "none", "queue", "launch", "play", "collect", "learn", "publish", "export", "disk", "memory"
    ]
    """What kind of wait; disk: there is no room for the run folders."""
    step: int
    """The training step."""
    who: list[str]
    """Replicas, rooms or policies that are waited for."""
    sentence: str
    """The same for people."""
    is_overdue: bool
    """Longer than limits.phase_deadline_s."""
    for_s: float | None = None
    """How long already, seconds."""


class RoundDocument(Document):
    """Counters of the episodes that are being played."""

    round_id: str
    """train-00004 or eval-00000."""
    kind: Literal["train", "eval"]
    """Why it is played."""
    step: int
    """The training step."""
    num_tickets: int
    """Task instances."""
    num_done: int
    """Played."""
    num_dropped: int
    """Given up after errors of machines; never scored."""
    num_groups: dict[str, int]
    """Groups so far, by policy."""
    opened_at: float
    """When."""


class ProgressDocument(Document):
    """Where a job is, and what it waits for."""

    job_id: str
    """The job."""
    state: JobState
    """Its state."""
    step: int
    """Learned steps."""
    steps: int
    """Steps to learn."""
    waiting: WaitingDocument
    """What it waits for."""
    round: RoundDocument | None = None
    """The round that is open, or the last one of this step."""
    versions: dict[str, int]
    """Committed version of each policy."""
    seconds_per_step: float | None = None
    """Mean of the last ten steps; with `max_staleness` from the end of one to the end of the next,
    while the job is not over."""
    eta_s: float | None = None
    """Seconds to the last step at that pace."""
