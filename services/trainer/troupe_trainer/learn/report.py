"""The metrics of one step: what was trained, how far the weights moved, and the cost.

Owns the measurement; troupe/runtime/step_report declares the metrics. Pure; never fails a step.
"""

import math
import statistics
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from troupe.api.records.v1 import records_pb2 as pb
from troupe.runtime.step_report.catalogue import METRICS, metric_of
from troupe.runtime.step_report.reductions import Measured
from troupe.runtime.step_report.trainer import TrainerPart
from troupe_trainer.learn.collector import Batch
from troupe_trainer.learn.learner import LearnOutcome
from troupe_trainer.learn.learners import Learned
from troupe_trainer.learn.validation import oldest_version
from troupe_trainer.samples import CreditedGroup

_BESIDE_GROUPS = frozenset(
    name
    for name, metric in METRICS["train"].items()
    if metric.source in ("critic", "demonstrations")
)


def step_report(batch: Batch, learned: Learned, learn_s: float, *, policy: str = "") -> TrainerPart:
    """Metrics of one step.

    Rewards and lengths are over all candidates of valid groups; ``groups_trained`` counts the
    groups with a gradient, ``groups_zero_variance`` those whose advantages are all 0. A group may
    be both, since a KL term or an entropy bonus has a gradient too. In a flat step no group has an
    advantage, so no policy learns from its rewards; where none of the trainer's was to, it is
    neither flat nor not. The trainer of one ``policy`` reports its name,
    and the counts by which its numbers are combined with the other trainers'. ``learn_s`` is the
    time of learning after the round, which ``batch.late_s`` is of.
    """
    ahead_s = max(0.0, learned.ahead_s - batch.late_s)
    learn_s += ahead_s
    credited = [group for groups in learned.credited.values() for group in groups]
    sampled = _sampled(credited)
    rewards = [candidate.reward for _, candidate in sampled]
    advantages = [
        advantage
        for group in credited
        for candidate, advantage in zip(group.record.candidates, group.advantages, strict=True)
        if not candidate.is_baseline
    ]
    lags = [batch.step - oldest_version(group.record) for group in credited]
    trained_tokens = sum(o.trained_tokens for o in learned.outcomes.values())
    zero = sum(not group.has_signal for group in credited)
    counts = {"groups": len(credited), "candidates": len(sampled), "advantages": len(advantages)}
    return TrainerPart(
        step=batch.step,
        policy_version=batch.step + 1,
        staleness=max(lags, default=0),
        staleness_mean=_mean(lags),
        overlap_s=round(batch.overlap_s, 4),
        learned_ahead_s=round(ahead_s, 4),
        waited_s=round(batch.waited_s, 4),
        trained_reward_mean=_mean(rewards),
        reward_std=_std(rewards),
        trained_reward_by_agent=_by_agent(sampled),
        advantage_std=_std(advantages),
        completion_tokens=_mean([len(candidate.token_ids) for _, candidate in sampled]),
        truncated_fraction=_mean([c.finish_reason == pb.FINISH_REASON_LENGTH for _, c in sampled]),
        groups_trained=sum(o.trained_groups for o in learned.outcomes.values()),
        groups_zero_variance=zero,
        is_flat=None if learned.is_idle else zero == len(credited),
        groups_dropped=dict(batch.dropped),
        candidates_filtered=sum(group.num_filtered for group in credited),
        trained_tokens=trained_tokens,
        peak_memory_bytes=_most_memory(learned),
        trained_tokens_per_s=trained_tokens / learn_s if trained_tokens and learn_s > 0 else None,
        mfu=_mfu(learned, learn_s),
        policy=policy,
        counts=counts if policy else {},
        advantage_mean=_mean(advantages) if policy else None,
        **_learning(learned, with_policies=bool(policy) or len(learned.outcomes) > 1),
    )


def _learning(learned: Learned, *, with_policies: bool) -> dict[str, Any]:
    """The numbers of learning over the policies, each by its own reduction, and by policy."""
    by_policy = {policy: _measured_numbers(outcome) for policy, outcome in learned.outcomes.items()}
    parts = [
        Measured(by_policy[policy], {"tokens": outcome.trained_tokens})
        for policy, outcome in learned.outcomes.items()
    ]
    names = dict.fromkeys(name for part in parts for name in part.values)
    values = {name: metric_of("train", name).over.of(name, parts) for name in names}
    declared = TrainerPart.metrics().keys()
    extra = {name: v for name, v in values.items() if name not in declared and v is not None}
    return {
        **{name: value for name, value in values.items() if name in declared},
        "extra": extra,
        "by_policy": by_policy if with_policies else {},
    }


def _measured_numbers(outcome: LearnOutcome) -> Mapping[str, float | None]:
    """A policy's numbers; without training only its critic's and demonstrations' are measured."""
    is_trained = outcome.trained_tokens > 0
    return {k: v if is_trained or k in _BESIDE_GROUPS else None for k, v in outcome.metrics.items()}


def _sampled(credited: list[CreditedGroup]) -> list[tuple[str, pb.Candidate]]:
    """Every candidate that was sampled to be learnt from, with its agent."""
    return [
        (group.record.agent, candidate)
        for group in credited
        for candidate in group.record.candidates
        if not candidate.is_baseline
    ]


def _by_agent(sampled: list[tuple[str, pb.Candidate]]) -> dict[str, float | None]:
    rewards: dict[str, list[float]] = defaultdict(list)
    for agent, candidate in sampled:
        rewards[agent].append(candidate.reward)
    return {agent: _mean(values) for agent, values in sorted(rewards.items())}


def _most_memory(learned: Learned) -> int | None:
    peaks = [outcome.peak_memory_bytes for outcome in learned.outcomes.values()]
    return max((peak for peak in peaks if peak), default=None)


def _mfu(learned: Learned, learn_s: float) -> float | None:
    """Share of the devices' full speed; None where that is not known or nothing was trained."""
    ideal = [outcome.ideal_s for outcome in learned.outcomes.values() if outcome.trained_tokens]
    if not ideal or None in ideal or learn_s <= 0:
        return None
    return math.fsum(seconds for seconds in ideal if seconds is not None) / learn_s


def _mean(values: list[float] | list[int] | list[bool]) -> float | None:
    return math.fsum(values) / len(values) if values else None


def _std(values: list[float]) -> float | None:
    return statistics.pstdev(values) if values else None
