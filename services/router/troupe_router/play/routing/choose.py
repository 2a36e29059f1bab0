"""Chooses the replica that answers a request: a pure decision over what is known of each.

Rendezvous hashing (Thaler and Ravishankar, "Using name-based mappings to increase hit rates",
IEEE/ACM Transactions on Networking 6(1), 1998) orders the replicas for a prompt; a bound on the
load (Mirrokni, Thorup and Zadimoghaddam, "Consistent Hashing with Bounded Loads",
arXiv:1608.01350) says when the next in order is taken. Owns no clock, connection or memory.
"""

import hashlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

LOAD_FACTOR = 1.5
"""A cached prefix is followed to a replica with up to this many times the mean load."""
UNBOUNDED = 1 << 62

Affinity = Literal["hit", "spill", "miss"]
"""hit: the replica that knows most of the prompt; spill: that one was busy; miss: none knows it."""


@dataclass(frozen=True, slots=True)
class RouteRequest:
    """The request to route.

    ``affinity`` orders replicas that are equal in everything else; equal prompts have equal ones.
    ``avoid`` names replicas that just failed this request; ``weight`` is its candidates.
    """

    policy: str
    policy_version: int
    affinity: str
    avoid: frozenset[str] = frozenset()
    weight: int = 1


@dataclass(frozen=True, slots=True)
class RouteCandidate:
    """What is known of one replica. ``versions`` maps each policy to its loaded versions.

    ``matched`` is the share of the prompt, from its start, that the replica was sent before under
    this version, 0 to 1. ``is_suspect``: its last answers were failures. ``limit`` bounds
    ``num_in_flight``, both in candidates.

    Example: ``RouteCandidate("rollout-0", True, 8, {"shared": {3, 4}}, matched=0.8)``.
    """

    replica_id: str
    is_serving: bool
    num_in_flight: int
    versions: Mapping[str, Collection[int]] = field(default_factory=dict[str, Collection[int]])
    matched: float = 0.0
    is_suspect: bool = False
    limit: int = UNBOUNDED

    def holds(self, policy: str, policy_version: int) -> bool:
        """Whether the replica serves this version."""
        return self.is_serving and policy_version in self.versions.get(policy, ())

    def has_room(self, weight: int) -> bool:
        """Whether ``weight`` more candidates may be sent; an idle one takes any request."""
        return self.num_in_flight == 0 or self.num_in_flight + weight <= self.limit


@dataclass(frozen=True, slots=True)
class Choice:
    """The replica to ask, and whether the prompt's affinity was kept."""

    replica: RouteCandidate
    affinity: Affinity


Strategy = Callable[[RouteRequest, Sequence[RouteCandidate]], Choice | None]
"""Chooses a replica; pure except for its own randomness. Jobs use `choose`."""


def choose(
    request: RouteRequest,
    candidates: Sequence[RouteCandidate],
    *,
    load_factor: float = LOAD_FACTOR,
) -> Choice | None:
    """The replica to ask; None when none holds the version, or all that do are full.

    A prompt goes to the replica that knows most of it, unless that one would have more than
    ``load_factor`` times the mean load and is not the least busy: then to the next in order. A
    prompt that no replica knows better than the others goes to the least busy. Ties are broken by
    rendezvous hashing. Replicas that failed (``avoid``, suspects) are taken only when no other is
    there.
    """
    able = [c for c in candidates if c.holds(request.policy, request.policy_version)]
    willing = [c for c in able if c.replica_id not in request.avoid]
    pool = [c for c in willing if not c.is_suspect] or willing or able
    pool = [c for c in pool if c.has_room(request.weight)]
    if not pool:
        return None
    best = max(c.matched for c in pool)
    least = min(c.num_in_flight for c in pool)
    if best > min(c.matched for c in pool) or (len(pool) == 1 and best > 0.0):
        loads = sum(c.num_in_flight for c in pool)
        bound = load_factor * (loads + request.weight) / len(pool)
        # The least busy replica always keeps the bound, so one can always be chosen.
        within = [
            c for c in pool if c.num_in_flight + request.weight <= bound or c.num_in_flight == least
        ]
        known = max(c.matched for c in within)
        chosen = _first([c for c in within if c.matched == known], request.affinity)
        return Choice(chosen, "hit" if known == best else "spill")
    chosen = _first([c for c in pool if c.num_in_flight == least], request.affinity)
    return Choice(chosen, "hit" if best >= 1.0 else "miss")


def is_held(request: RouteRequest, candidates: Sequence[RouteCandidate]) -> bool:
    """Whether any replica holds the version, full or not."""
    return any(c.holds(request.policy, request.policy_version) for c in candidates)


def newer_version(request: RouteRequest, candidates: Sequence[RouteCandidate]) -> int | None:
    """The newest version of the policy that a serving replica holds and that is newer than asked.

    For jobs that bound staleness instead of forbidding it: an engine of full weights holds one
    version, and the weights may be newer by the time that an episode takes its next turn.
    """
    return max(
        (
            version
            for c in candidates
            if c.is_serving
            for version in c.versions.get(request.policy, ())
            if version > request.policy_version
        ),
        default=None,
    )


def _first(equal: Sequence[RouteCandidate], affinity: str) -> RouteCandidate:
    """Of replicas that are equal in everything else, the nearest to the prompt."""
    if len(equal) == 1:
        return equal[0]
    return min(equal, key=lambda c: _distance(affinity, c.replica_id))


def _distance(affinity: str, replica_id: str) -> bytes:
    return hashlib.blake2b(f"{affinity}\x1f{replica_id}".encode(), digest_size=8).digest()
