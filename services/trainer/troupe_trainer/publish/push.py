"""The state of the replicas while one version is published, and their heartbeats' claims.

Owns no calls. A replica is identified by its life: after a restart it counts as another replica.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from troupe.api.router.v1.router_pb2 import Replica, ReplicaPolicy
from troupe.runtime.engines.engine import PolicyState
from troupe_trainer.checkpoint.export import Export
from troupe_trainer.publish.push_events import PushResult

Life = tuple[str, str]
"""One life of one replica: replica_id and incarnation."""


@dataclass(frozen=True, slots=True)
class PushSeconds:
    """How long a push took: until all replicas held the version, and then until all served it.

    Example: ``PushSeconds(stage=1.8, activate=0.02)``.
    """

    stage: float
    activate: float

    @classmethod
    def at_once(cls, pushes: Sequence["PushSeconds"]) -> "PushSeconds":
        """Of pushes at one time: until the last had staged, and until the last served."""
        staged = max(push.stage for push in pushes)
        return cls(staged, max(push.stage + push.activate for push in pushes) - staged)


@dataclass(slots=True)
class Push:
    """One version being published."""

    export: Export
    staged: set[Life] = field(default_factory=set[Life])
    active: set[Life] = field(default_factory=set[Life])
    rejections: dict[Life, int] = field(default_factory=dict[Life, int])
    results: dict[Life, PushResult] = field(default_factory=dict[Life, PushResult])
    problem: str = ""

    def result(self, replica: Replica) -> PushResult:
        """The record of one replica; the same one until the round ends."""
        return self.results.setdefault(life_of(replica), PushResult(replica.replica_id))


def life_of(replica: Replica) -> Life:
    """The replica's life."""
    return replica.replica_id, replica.incarnation


def serves(replica: Replica, export: Export) -> bool:
    """Whether the heartbeat says that the replica serves exactly these weights."""
    manifest = export.manifest
    return any(
        (p.policy, p.active_version, p.tensor_digest)
        == (manifest.policy, manifest.policy_version, manifest.tensor_digest)
        for p in replica.policies
    )


def is_among(policies: Iterable[ReplicaPolicy | PolicyState], export: Export) -> bool:
    """Whether a replica that says this of its policies has loaded the version."""
    manifest = export.manifest
    return any(
        p.policy == manifest.policy and manifest.policy_version in p.loaded_versions
        for p in policies
    )
