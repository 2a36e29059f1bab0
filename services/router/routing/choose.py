"""Which replica answers a request: a pure decision over what is known of the replicas."""

import hashlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class RouteRequest:
    """What is asked for. ``affinity`` is equal for prompts that share a prefix.

    ``avoid`` names replicas that just failed this request.
    """

    policy: str
    policy_version: int
    affinity: str
    avoid: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class RouteCandidate:
    """What is known of one replica. ``versions`` maps each policy to its loaded versions.

    Example: ``RouteCandidate("rollout-0", True, 8, {"shared": {3, 4}})``.
    """

    replica_id: str
    is_serving: bool
    num_in_flight: int
    versions: dict[str, Collection[int]] = field(default_factory=dict[str, Collection[int]])

    def holds(self, policy: str, policy_version: int) -> bool:
        """Whether the version can be asked for."""
        return self.is_serving and policy_version in self.versions.get(policy, ())


def choose(request: RouteRequest, candidates: Sequence[RouteCandidate]) -> RouteCandidate | None:
    """The least busy replica that holds the version, or None when none does.

    Equally busy replicas are ordered by rendezvous hashing of ``affinity``, so that equal prompts
    meet the same prefix cache. A replica in ``avoid`` is taken only when no other holds it.
    """
    able = [c for c in candidates if c.holds(request.policy, request.policy_version)]
    preferred = [c for c in able if c.replica_id not in request.avoid] or able
    return min(
        preferred,
        key=lambda c: (c.num_in_flight, _distance(request.affinity, c.replica_id)),
        default=None,
    )


def _distance(affinity: str, replica_id: str) -> bytes:
    return hashlib.blake2b(f"{affinity}\x1f{replica_id}".encode(), digest_size=8).digest()
