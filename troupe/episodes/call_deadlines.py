"""How long a job's completions and episodes are waited for, by what the fleet was seen to do.

Owns the observed speeds of one player. What follows from them is ``spec.deadlines``.
"""

from collections import defaultdict

from troupe.spec.deadlines import decoding_rate, episode_s, generation_s
from troupe.spec.job import JobSpec

SLACK = 4.0
"""A completion may take so many times what completions took on average, for each of its tokens."""
SLOWEST = 20.0
"""Waiting grows to at most so many times what the model's size allows."""
_ENOUGH_TOKENS, _REMEMBERED_TOKENS = 1_000, 1_000_000


class CallDeadlines:
    """Deadlines of one job's calls. They never shorten below what the model's size allows.

    Example: ``CallDeadlines(spec).generation_s("coder", 8192)``.
    """

    def __init__(self, spec: JobSpec) -> None:
        self._spec = spec
        self._floors: dict[str, float] = {}
        self._tokens: defaultdict[str, float] = defaultdict(float)
        self._seconds: defaultdict[str, float] = defaultdict(float)

    def generation_s(self, policy: str, max_new_tokens: int) -> float:
        """Time of a Generate call of ``policy``, or of a call that has a served teacher score
        completions: as if it had to write the longest."""
        return generation_s(self._spec.limits, max_new_tokens, self.rate(policy))

    def episode_s(self) -> float:
        """Time of an episode that begins now."""
        return episode_s(self._spec, {name: self.rate(name) for name in self._spec.served()})

    def note(self, policy: str, num_tokens: int, seconds: float) -> None:
        """A call took so long for a longest completion of ``num_tokens``, or was given up."""
        if self._tokens[policy] > _REMEMBERED_TOKENS:
            self._tokens[policy] /= 2
            self._seconds[policy] /= 2
        self._tokens[policy] += num_tokens
        self._seconds[policy] += seconds

    def rate(self, policy: str) -> float:
        """Tokens a second that a completion of ``policy`` is expected to reach at least."""
        if policy not in self._floors:
            self._floors[policy] = decoding_rate(self._spec.served()[policy])
        floor, tokens = self._floors[policy], self._tokens[policy]
        if tokens < _ENOUGH_TOKENS or not self._seconds[policy]:
            return floor
        observed = tokens / self._seconds[policy] / SLACK
        return min(floor, max(observed, floor / SLOWEST))
