"""One step in numbers, for people: what was trained, how far it moved, what it took.

Owns the names of the "step.learned" event. Pure; never fails a step.
"""

import math
import statistics
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from troupe.api.records.v1 import records_pb2 as pb
from troupe_trainer.learn.collector import Batch
from troupe_trainer.learn.credit import CreditedGroup
from troupe_trainer.learn.learner import LearnOutcome
from troupe_trainer.learn.learners import Learned
from troupe_trainer.learn.validation import oldest_version

_MEANS = ("loss", "kl_rollout", "parity_kl", "ratio_mean", "clip_fraction", "entropy", "grad_norm")
_VALUES = frozenset({"value_loss", "value_mean", "value_clip_fraction", "explained_variance"})


def step_report(
    batch: Batch, learned: Learned, learn_s: float, *, policy: str = ""
) -> dict[str, Any]:
    """Metrics of one step; means over policies are weighted by their trained tokens.

    Rewards and lengths are over all candidates of valid groups; ``groups_trained`` counts the
    groups with a gradient, ``groups_zero_variance`` those whose advantages are all 0. A group may
    be both, for a KL term or an entropy bonus has a gradient of its own. In a flat step no group
    has an advantage, so no policy learns from its rewards. A number that nothing was measured for
    is None, never 0. The trainer of one ``policy`` says so, and the counts by which its numbers
    are put together with the others'.
    """
    credited = [group for groups in learned.credited.values() for group in groups]
    trained_tokens = sum(o.trained_tokens for o in learned.outcomes.values())
    zero = sum(not group.has_signal for group in credited)
    return {
        "step": batch.step,
        "policy_version": batch.step + 1,
        **_staleness(batch.step, credited),
        "overlap_s": round(batch.overlap_s, 4),
        **_learning(learned),
        **_groups(credited),
        "groups_trained": sum(o.trained_groups for o in learned.outcomes.values()),
        "groups_zero_variance": zero,
        "is_flat": zero == len(credited),
        "groups_dropped": dict(batch.dropped),
        "candidates_filtered": sum(group.num_filtered for group in credited),
        "trained_tokens": trained_tokens,
        "peak_memory_bytes": max(
            (o.peak_memory_bytes for o in learned.outcomes.values() if o.peak_memory_bytes),
            default=None,
        ),
        "tokens_per_s": trained_tokens / learn_s if trained_tokens and learn_s > 0 else None,
        **(_part(policy, learned, credited) if policy else {}),
    }


def _part(policy: str, learned: Learned, credited: list[CreditedGroup]) -> dict[str, Any]:
    """What the report of one policy's trainer has beside the others."""
    candidates = [c for g in credited for c in g.record.candidates if not c.is_baseline]
    counts = {
        "groups": len(credited),
        "candidates": len(candidates),
        "advantages": sum(len(group.advantages) for group in credited),
    }
    own = {name: _own(outcome) for name, outcome in learned.outcomes.items()}
    mean = _mean([a for group in credited for a in group.advantages])
    return {"policy": policy, "counts": counts, "advantage_mean": mean, "by_policy": own}


def _learning(learned: Learned) -> dict[str, Any]:
    """Means weighted by trained tokens; None where nothing was trained, for there is no mean."""
    trained = [o for o in learned.outcomes.values() if o.trained_tokens]
    weights: dict[str, int] = defaultdict(int)
    for outcome in trained:
        for name in outcome.metrics:
            weights[name] += outcome.trained_tokens
    sums: dict[str, float] = defaultdict(float)
    for outcome in trained:
        for name, value in outcome.metrics.items():
            sums[name] += outcome.trained_tokens / weights[name] * value
    metrics: dict[str, Any] = dict.fromkeys(_MEANS) | _of_critics(learned) | dict(sums)
    for name in ("ratio_max", "parity_ratio"):
        found = [o.metrics[name] for o in trained if name in o.metrics]
        metrics[name] = max(found, default=None)
    if len(learned.outcomes) == 1:
        return metrics
    return {**metrics, "by_policy": {p: _own(o) for p, o in learned.outcomes.items()}}


def _of_critics(learned: Learned) -> dict[str, float]:
    """Plain means over the policies' critics, which learn in steps that train no policy too."""
    found: dict[str, list[float]] = defaultdict(list)
    for outcome in learned.outcomes.values():
        for name in _VALUES & outcome.metrics.keys():
            found[name].append(outcome.metrics[name])
    return {name: math.fsum(own) / len(own) for name, own in sorted(found.items())}


def _own(outcome: LearnOutcome) -> dict[str, float | None]:
    """A policy's metrics; without training those of its critic alone are numbers."""
    is_trained = outcome.trained_tokens > 0
    return {k: v if is_trained or k in _VALUES else None for k, v in outcome.metrics.items()}


def _staleness(step: int, credited: list[CreditedGroup]) -> dict[str, Any]:
    """Steps by which the weights that sampled lag behind: of the oldest group, and the mean."""
    lags = [step - oldest_version(group.record) for group in credited]
    return {"staleness": max(lags, default=0), "staleness_mean": _mean(lags)}


def _groups(credited: list[CreditedGroup]) -> dict[str, Any]:
    pairs = [
        (group.record.agent, c)
        for group in credited
        for c in group.record.candidates
        if not c.is_baseline
    ]
    rewards: dict[str, list[float]] = defaultdict(list)
    for agent, candidate in pairs:
        rewards[agent].append(candidate.reward)
    lengths = [len(candidate.token_ids) for _, candidate in pairs]
    truncated = [c.finish_reason == pb.FINISH_REASON_LENGTH for _, c in pairs]
    every = [candidate.reward for _, candidate in pairs]
    return {
        "reward_mean": _mean(every),
        "reward_std": _std(every),
        "reward_by_agent": {agent: _mean(values) for agent, values in sorted(rewards.items())},
        "advantage_std": _std([a for group in credited for a in group.advantages]),
        "completion_tokens": _mean(lengths),
        "truncated_fraction": _mean(truncated),
    }


def with_phases(report: Mapping[str, Any], phases: Mapping[str, float]) -> dict[str, Any]:
    """``report`` with the seconds of each phase."""
    return {**report, "phases": {name: round(value, 4) for name, value in phases.items()}}


def _mean(values: list[float] | list[int] | list[bool]) -> float | None:
    return math.fsum(values) / len(values) if values else None


def _std(values: list[float]) -> float | None:
    return statistics.pstdev(values) if values else None
