"""What trainers said of each step: one trainer's words, or those of every policy's put together.

Owns the putting together: the numbers are those that one trainer of all policies would say, up to
rounding, and the times are the slowest one's. Pure; never waits.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from troupe.spec.job import JobSpec

Report = Mapping[str, Any]
_OF_ONE = ("policy", "counts", "advantage_mean")
_SUMS = ("groups_trained", "groups_zero_variance", "candidates_filtered", "trained_tokens")
_LARGEST = ("staleness", "overlap_s", "peak_memory_bytes", "ratio_max", "parity_ratio")
_MEANS = {
    "staleness_mean": "groups",
    "reward_mean": "candidates",
    "completion_tokens": "candidates",
    "truncated_fraction": "candidates",
}
_WORK = ("learn", "checkpoint", "publish")


class LearnedSteps:
    """The words of a job's trainers by step, as they come in."""

    def __init__(self, spec: JobSpec) -> None:
        self._trainers = spec.trainers()
        self._told: defaultdict[int, dict[str, dict[str, Any]]] = defaultdict(dict)

    def hear(self, report: Report) -> None:
        """One trainer's word of one step; a later word of it adds to the earlier."""
        own = self._told[int(report["step"])].setdefault(str(report.get("policy", "")), {})
        own.update(report)

    def is_told(self, step: int) -> bool:
        """Every trainer has said what it learnt in ``step``."""
        told = self._told.get(step, {})
        return all(policy in told for policy in self._trainers)

    def of(self, step: int) -> dict[str, Any]:
        """All that was said of ``step``; empty when nothing was."""
        told = self._told.get(step, {})
        if self._trainers == ("",):
            return told.get("", {})
        parts = [told[policy] for policy in self._trainers if policy in told]
        return together(parts) if parts else {}

    def forget(self, step: int) -> None:
        """Nobody asks for ``step`` any more."""
        self._told.pop(step, None)


def together(parts: Sequence[Report]) -> dict[str, Any]:
    """One report of the ``parts`` that the policies' trainers made of one step."""
    whole = {name: value for name, value in parts[0].items() if name not in _OF_ONE}
    whole |= _learning(parts)
    for name in _SUMS:
        whole[name] = sum(part[name] for part in parts)
    for name in _LARGEST:
        whole[name] = max((p[name] for p in parts if p.get(name) is not None), default=None)
    for name, weight in _MEANS.items():
        whole[name] = _mean(parts, weight, lambda part, of=name: part.get(of))
    whole["reward_std"] = _spread(parts, "candidates", "reward_std", "reward_mean")
    whole["advantage_std"] = _spread(parts, "advantages", "advantage_std", "advantage_mean")
    rewards = {agent: value for part in parts for agent, value in part["reward_by_agent"].items()}
    whole["reward_by_agent"] = dict(sorted(rewards.items()))
    dropped: Counter[str] = Counter()
    for part in parts:
        dropped.update(part["groups_dropped"])
    whole["groups_dropped"] = dict(sorted(dropped.items()))
    whole["is_flat"] = all(part["is_flat"] for part in parts)
    slowest = max((part.get("phases") or {} for part in parts), key=_work_s)
    whole["phases"] = dict(slowest)
    learn_s = max(float((part.get("phases") or {}).get("learn", 0.0)) for part in parts)
    tokens = whole["trained_tokens"]
    whole["tokens_per_s"] = tokens / learn_s if tokens and learn_s > 0 else None
    return whole


def _learning(parts: Sequence[Report]) -> dict[str, Any]:
    """Means weighted by trained tokens, over the policies that say a number, and all by policy."""
    by_policy: dict[str, Mapping[str, Any]] = {}
    weights: dict[str, int] = {}
    for part in parts:
        by_policy |= part["by_policy"]
        weights |= dict.fromkeys(part["by_policy"], part["trained_tokens"])
    found: dict[str, Any] = {}
    trained = [own for policy, own in by_policy.items() if weights[policy]]
    for name in sorted({name for own in trained for name in own}):
        pairs = [
            (weights[policy], own[name])
            for policy, own in by_policy.items()
            if weights[policy] and own.get(name) is not None
        ]
        tokens = sum(weight for weight, _ in pairs)
        found[name] = (
            math.fsum(weight / tokens * value for weight, value in pairs) if pairs else None
        )
    if len(by_policy) > 1:
        found["by_policy"] = by_policy
    return found


def _mean(
    parts: Sequence[Report], weight: str, value: Callable[[Report], float | None]
) -> float | None:
    """The mean over all that ``weight`` counts; None where there is nothing."""
    pairs = [(part["counts"][weight], value(part)) for part in parts]
    known = [(count, found) for count, found in pairs if count and found is not None]
    total = sum(count for count, _ in known)
    return math.fsum(count * found for count, found in known) / total if total else None


def _spread(parts: Sequence[Report], weight: str, std: str, mean: str) -> float | None:
    """The standard deviation over all, from each part's own and its mean."""
    centre = _mean(parts, weight, lambda part: part.get(mean))
    if centre is None:
        return None

    def square(part: Report) -> float | None:
        if part.get(std) is None or part.get(mean) is None:
            return None
        return part[std] ** 2 + (part[mean] - centre) ** 2

    variance = _mean(parts, weight, square)
    return None if variance is None else math.sqrt(variance)


def _work_s(phases: Mapping[str, float]) -> float:
    return sum(float(phases.get(name, 0.0)) for name in _WORK)
