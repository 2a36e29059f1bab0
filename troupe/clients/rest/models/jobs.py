"""REST models of jobs: a job, a change of it, its plan, and the queue of all jobs."""

from typing import Annotated, Any, Literal, Self

from pydantic import ConfigDict, Field, model_validator

from troupe.clients.rest.models.base import Document, Parameters

JobState = Literal[
    "queued",
    "launching",
    "running",
    "pausing",
    "paused",
    "cancelling",
    "succeeded",
    "failed",
    "cancelled",
]
TERMINAL: frozenset[str] = frozenset({"succeeded", "failed", "cancelled"})
MOST_JOBS = 1000
"""The largest page of jobs."""

SPEC_EXAMPLE: dict[str, Any] = {
    "name": "demo",
    "steps": 40,
    "tasks_per_step": 32,
    "task": {"name": "plan_path", "params": {"size": 6}},
    "workflow": {"order": ["tool", "planner"], "max_turns": 4},
    "agents": {"tool": {"policy": "shared"}, "planner": {"policy": "shared"}},
    "policies": {"shared": {"model": "Qwen/Qwen3-0.6B"}},
}
_EXAMPLE: dict[str, Any] = {
    "job_id": "demo-1",
    "name": "demo",
    "state": "running",
    "step": 3,
    "steps": 40,
    "run_dir": "/srv/runs/demo-1",
    "reason": "",
    "error": None,
    "created_at": 1767225600.0,
    "started_at": 1767225601.5,
    "ended_at": None,
    "life": 1,
    "priority": 0,
    "owner": "ci",
    "is_pinned": False,
    "replicas": 1,
    "queue_position": None,
    "spec": SPEC_EXAMPLE,
}


class SubmitQuery(Parameters):
    """How a spec is submitted."""

    dry_run: bool = False
    """Check the spec and answer with a plan; nothing starts."""
    resume: Annotated[str | None, Field(max_length=100)] = None
    """Id of a job to resume instead."""
    priority: Annotated[int, Field(ge=-100, le=100)] = 0
    """Queued jobs of a higher priority start first."""


class JobPageQuery(Parameters):
    """Which jobs."""

    limit: Annotated[int, Field(ge=1, le=MOST_JOBS)] = 50
    """Most jobs of the page."""
    cursor: Annotated[str | None, Field(max_length=200)] = None
    """`next_cursor` of the page before."""
    state: list[JobState] | None = None
    """Only in these states; may repeat."""


class JobDocument(Document):
    """A job as the router shows it.

    Example: ``JobDocument(job_id="demo-1", name="demo", state="running", step=3, steps=40)``.
    """

    model_config = ConfigDict(json_schema_extra={"example": _EXAMPLE})

    job_id: str
    """Name and number; also the name of its run folder."""
    name: str = ""
    """The spec's name."""
    state: JobState
    """Where it is in its life."""
    step: int = 0
    """Learned steps."""
    steps: int = 0
    """Steps to learn."""
    run_dir: str = ""
    """Its run folder, as the router sees it."""
    reason: str = ""
    """Why the state was reached, where there is something to say."""
    error: str | None = None
    """The reason of a failed job."""
    created_at: float | None = None
    """When it was submitted."""
    started_at: float | None = None
    """When its processes were last started."""
    ended_at: float | None = None
    """When it ended."""
    life: int = 1
    """Grows with every resume."""
    priority: int = 0
    """Queued jobs of a higher priority start first."""
    owner: str = ""
    """Name of the API key that submitted it; empty without keys."""
    is_pinned: bool = False
    """Whether retention keeps it and its run folder."""
    replicas: int = 0
    """Rollout replicas that it takes from the quota."""
    queue_position: int | None = None
    """Place in the queue, from 1, while it is queued."""
    spec: dict[str, Any] | None = None
    """What it learns (JobSpec)."""

    @property
    def is_over(self) -> bool:
        """True in a state that nothing follows."""
        return self.state in TERMINAL


class JobPage(Document):
    """Jobs, newest first."""

    jobs: list[JobDocument]
    """The page."""
    next_cursor: str | None = None
    """`cursor` of the next page; null on the last."""


class JobChange(Parameters):
    """What may be changed of a job; what is left out stays."""

    priority: Annotated[int | None, Field(ge=-100, le=100)] = None
    """New priority of a job that waits; higher starts first."""
    is_pinned: bool | None = None
    """Whether retention keeps the job and its run folder."""

    @model_validator(mode="after")
    def _changes_something(self) -> Self:
        if self.priority is None and self.is_pinned is None:
            raise ValueError("give priority or is_pinned")
        return self


class QueuedJobDocument(Document):
    """One job that waits for its turn."""

    job_id: str
    """The job."""
    priority: int
    """Its priority."""
    replicas: int
    """Replicas that it needs."""
    waits_for: str
    """Why it does not start yet."""


class QuotaDocument(Document):
    """What jobs may take together, and who waits."""

    max_replicas: int | None = None
    """Rollout replicas of all jobs; null: no limit."""
    max_jobs: int | None = None
    """Jobs at once; null: no limit."""
    in_use: int
    """Replicas of the jobs at work."""
    active_jobs: int
    """Jobs at work."""
    queued: list[QueuedJobDocument]
    """In the order in which they will start."""


class PlanDocument(Document):
    """The answer to a dry run: what a job would start and what it would cost at most."""

    dry_run: bool
    """Always true."""
    spec: dict[str, Any]
    """The spec, resolved."""
    launcher: str
    """local or none."""
    processes: list[dict[str, str]]
    """Processes that the router would start: name and module."""
    replicas: int
    """Rollout replicas that it takes from the quota."""
    pools: list[dict[str, Any]] = Field(default_factory=list[dict[str, Any]])
    """Its rollout pools: name, policies that share each replica, model, dtype, replicas."""
    quota: dict[str, Any]
    """max_replicas, in_use, and whether the job would start now (fits)."""
    step: dict[str, Any]
    """Bounds on one step's work."""
    eval: dict[str, Any] | None = None
    """Evaluations, when there are some."""
    estimate: dict[str, Any]
    """Bounds on the whole job, and times where an earlier job tells a pace."""
    checks: list[dict[str, Any]]
    """What was looked at: name, ok, detail."""
