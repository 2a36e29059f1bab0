"""One step in numbers, for people: what was trained, how far it moved, what it took.

Owns the names of the "step.learned" event. Pure; never fails a step.
"""

import math
import statistics
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from services.trainer.collector import Batch
from services.trainer.samples import CreditedGroup
from services.trainer.team import Learned
from troupe.api.records.v1 import records_pb2 as pb


def step_report(batch: Batch, learned: Learned, learn_s: float) -> dict[str, Any]:
    """Metrics of one step; means over policies are weighted by their trained tokens.

    Rewards and lengths are over all candidates of valid groups; ``groups_trained`` counts the
    groups with a gradient, ``groups_zero_variance`` those that had none to give.
    """
    credited = [group for groups in learned.credited.values() for group in groups]
    trained_tokens = sum(o.trained_tokens for o in learned.outcomes.values())
    zero = sum(not group.has_signal for group in credited)
    return {
        "step": batch.step,
        "policy_version": batch.step + 1,
        "staleness": 0,
        **_learning(learned),
        **_groups(credited),
        "groups_trained": len(credited) - zero,
        "groups_zero_variance": zero,
        "groups_dropped": dict(batch.dropped),
        "trained_tokens": trained_tokens,
        "tokens_per_s": trained_tokens / learn_s if learn_s > 0 else 0.0,
    }


def _learning(learned: Learned) -> dict[str, Any]:
    sums: dict[str, float] = defaultdict(float)
    weight = sum(o.trained_tokens for o in learned.outcomes.values())
    for outcome in learned.outcomes.values():
        share = outcome.trained_tokens / weight if weight else 1.0 / len(learned.outcomes)
        for name, value in outcome.metrics.items():
            sums[name] += share * value
    names = ("loss", "kl_rollout", "ratio_mean", "clip_fraction", "entropy", "grad_norm")
    metrics = dict.fromkeys(names, 0.0) | dict(sums)
    ratios = [o.metrics["ratio_max"] for o in learned.outcomes.values()]
    metrics["ratio_max"] = max(ratios, default=0.0)
    if len(learned.outcomes) == 1:
        return metrics
    by_policy = {policy: dict(o.metrics) for policy, o in learned.outcomes.items()}
    return {**metrics, "by_policy": by_policy}


def _groups(credited: list[CreditedGroup]) -> dict[str, Any]:
    pairs = [(group.record.agent, c) for group in credited for c in group.record.candidates]
    rewards: dict[str, list[float]] = defaultdict(list)
    for agent, candidate in pairs:
        rewards[agent].append(candidate.reward)
    lengths = [len(candidate.token_ids) for _, candidate in pairs]
    truncated = [c.finish_reason == pb.FINISH_REASON_LENGTH for _, c in pairs]
    every = [candidate.reward for _, candidate in pairs]
    return {
        "reward_mean": _mean(every),
        "reward_std": statistics.pstdev(every) if every else 0.0,
        "reward_by_agent": {agent: _mean(values) for agent, values in sorted(rewards.items())},
        "advantage_std": _std([a for group in credited for a in group.advantages]),
        "completion_tokens": _mean(lengths),
        "truncated_fraction": _mean(truncated),
    }


def with_phases(report: Mapping[str, Any], phases: Mapping[str, float]) -> dict[str, Any]:
    """``report`` with the seconds of each phase."""
    return {**report, "phases": {name: round(value, 4) for name, value in phases.items()}}


def _mean(values: list[float] | list[int] | list[bool]) -> float:
    return math.fsum(values) / len(values) if values else 0.0


def _std(values: list[float]) -> float:
    return statistics.pstdev(values) if values else 0.0
