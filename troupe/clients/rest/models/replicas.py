"""REST models of living replicas and their policies."""

from typing import Literal

from troupe.clients.rest.models.base import Document


class ReplicaPolicyDocument(Document):
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


class ReplicaDocument(Document):
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
    policies: list[ReplicaPolicyDocument]
    """Policies that it holds (rollout)."""


class ReplicaList(Document):
    """Living replicas."""

    replicas: list[ReplicaDocument]
    """By replica_id."""


class PolicyReplicaDocument(Document):
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


class PolicyDocument(Document):
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
    pool: str = ""
    """The rollout pool that serves it, named for its first policy; others may share it."""
    replicas_wanted: int
    """Replicas of that pool."""
    replicas: list[PolicyReplicaDocument]
    """Replicas that hold it."""
    lag_max: int | None = None
    """The largest lag of its replicas."""


class PolicyList(Document):
    """Policies of jobs at work, or of one job."""

    policies: list[PolicyDocument]
    """By job and name."""
