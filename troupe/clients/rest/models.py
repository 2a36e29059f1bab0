"""What the REST API says of jobs and of the platform, for the router's OpenAPI and for clients.

Owns field names and types. Never talks to a router. Instants are Unix seconds.
"""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

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

Scope = Literal["read", "submit", "admin"]


class Answer(BaseModel):
    """Base of every answer: frozen; fields of a newer router are left out."""

    model_config = ConfigDict(frozen=True, extra="ignore", use_attribute_docstrings=True)


class Fault(Answer):
    """One thing that is wrong in a request."""

    pointer: str
    """JSON pointer (RFC 6901) into the body, or to the parameter; empty: the whole body."""
    message: str
    """What is wrong, and what to do."""


class Problem(Answer):
    """An error (RFC 9457)."""

    type: str
    """urn:troupe:<reason>."""
    title: str
    """The reason in words."""
    status: int
    """The HTTP status."""
    detail: str
    """What was wrong, where, and what to do."""
    reason: str
    """Stable name: NOT_FOUND, CONFLICT, SPEC_INVALID, ..."""
    pointer: str | None = None
    """The first fault's pointer."""
    errors: list[Fault] = []
    """Every fault that was found."""


class Job(Answer):
    """A job as the router shows it.

    Example: ``Job(job_id="demo-1", name="demo", state="running", step=3, steps=40)``.
    """

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


class JobPage(Answer):
    """Jobs, newest first."""

    jobs: list[Job]
    """The page."""
    next_cursor: str | None = None
    """`cursor` of the next page; null on the last."""


class JobChange(BaseModel):
    """What may be changed of a job that waits."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    priority: int = Field(ge=-100, le=100)
    """New priority; higher starts first."""


class JobEvent(Answer):
    """One thing that happened to a job; ``id`` is its place, for ``events(after=...)``.

    Example: ``JobEvent(id="17-0", type="job.state", data={"state": "running"})``.
    """

    id: str
    """Place in the job's events."""
    type: str
    """Stable name: job.state, round.opened, round.played, step.recorded, ..."""
    occurred_at: float = 0.0
    """When."""
    source: str = ""
    """Service that said it."""
    data: dict[str, Any] = {}
    """The details."""


class EventPage(Answer):
    """Events after a place."""

    events: list[JobEvent]
    """In the order in which they happened."""
    next: str
    """`after` of the next page."""


class Waiting(Answer):
    """What a job waits for now."""

    phase: Literal["none", "queue", "launch", "play", "collect", "learn", "publish", "export"]
    """What kind of wait."""
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


class Round(Answer):
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


class JobProgress(Answer):
    """Where a job is, and what it waits for."""

    job_id: str
    """The job."""
    state: JobState
    """Its state."""
    step: int
    """Learned steps."""
    steps: int
    """Steps to learn."""
    waiting: Waiting
    """What it waits for."""
    round: Round | None = None
    """The round that is open, or the last one of this step."""
    versions: dict[str, int]
    """Committed version of each policy."""
    seconds_per_step: float | None = None
    """Mean of the last ten steps."""
    eta_s: float | None = None
    """Seconds to the last step at that pace."""


class Plan(Answer):
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


class QueuedJob(Answer):
    """One job that waits for its turn."""

    job_id: str
    """The job."""
    priority: int
    """Its priority."""
    replicas: int
    """Replicas that it needs."""
    waits_for: str
    """Why it does not start yet."""


class Quota(Answer):
    """What jobs may take together, and who waits."""

    max_replicas: int | None = None
    """Rollout replicas of all jobs; null: no limit."""
    max_jobs: int | None = None
    """Jobs at once; null: no limit."""
    in_use: int
    """Replicas of the jobs at work."""
    active_jobs: int
    """Jobs at work."""
    queued: list[QueuedJob]
    """In the order in which they will start."""


class Session(Answer):
    """Who the caller is to the router."""

    authentication: Literal["off", "keys"]
    """off: the router asks for no key."""
    name: str | None = None
    """Name of the key that was sent."""
    scopes: list[Scope]
    """What it may do."""


class SessionRequest(BaseModel):
    """Signs a browser in."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    key: str = Field(min_length=1, max_length=200)


class ReplicaPolicy(Answer):
    """A policy on a rollout replica."""

    policy: str
    """The policy."""
    version: int
    """Version that answers."""
    loaded_versions: list[int]
    """Versions that can be asked for."""
    tensor_digest: str
    """Digest of the active version's tensors."""
    lag: int | None = None
    """Versions behind the committed one; null when none is committed."""


class Replica(Answer):
    """A living process of the platform."""

    replica_id: str
    """Its name."""
    kind: str
    """rollout, env or trainer."""
    address: str
    """host:port of its gRPC server."""
    job_id: str | None = None
    """What it works for."""
    is_serving: bool
    """False while it loads or drains."""
    num_in_flight: int
    """Requests in work."""
    seen_at: float
    """Last heartbeat."""
    policies: list[ReplicaPolicy]
    """Policies that it holds (rollout)."""


class ReplicaList(Answer):
    """Living replicas."""

    replicas: list[Replica]
    """By replica_id."""


class PolicyReplica(Answer):
    """A replica that serves a policy."""

    replica_id: str
    """The replica."""
    version: int
    """Version that answers there."""
    tensor_digest: str
    """Its digest."""
    lag: int | None = None
    """Versions behind."""
    is_serving: bool
    """Whether it takes requests."""


class Policy(Answer):
    """One set of weights of a job."""

    job_id: str
    """The job."""
    policy: str
    """Its name."""
    model: str
    """The model that it began as."""
    train: Literal["lora", "full"]
    """What is trained of it."""
    rank: int | None = None
    """LoRA rank."""
    trains: bool
    """False for past versions and frozen opponents."""
    agents: list[str]
    """Agents that sample from it."""
    version: int | None = None
    """Committed version; null before the first."""
    tensor_digest: str | None = None
    """Its digest, which every replica must show."""
    replicas_wanted: int
    """Replicas that the spec asks for."""
    replicas: list[PolicyReplica]
    """Replicas that hold it."""
    lag_max: int | None = None
    """The largest lag of its replicas."""


class PolicyList(Answer):
    """Policies of jobs at work, or of one job."""

    policies: list[Policy]
    """By job and name."""


class TaskFamily(Answer):
    """A kind of task that jobs can name; ``error`` when it cannot be loaded."""

    name: str
    """Name in specs."""
    error: str | None = None
    """Why it cannot be loaded here."""
    summary: str = ""
    """One line."""
    agents: list[str] = []
    """Seats of the team."""
    params: dict[str, Any] = {}
    """JSON schema of its parameters."""
    local_terms: dict[str, dict[str, float]] = {}
    """Reward terms of each agent with their default weights."""
    return_bound: float | None = None
    """Largest sum of team rewards in one episode."""


class TaskList(Answer):
    """Installed task families."""

    tasks: list[TaskFamily]
    """By name."""


class Algorithm(Answer):
    """An installed algorithm."""

    name: str
    """Name in specs."""
    summary: str
    """One line."""


class AlgorithmList(Answer):
    """Installed algorithms."""

    algorithms: list[Algorithm]
    """By name."""


class Health(Answer):
    """The router's own health."""

    status: Literal["ok"]
    """Always ok; anything else is a problem."""
