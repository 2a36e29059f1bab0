"""Turns scores into figures: one summary per policy, and paired differences between policies.

Pure. Errors are counted and never scored.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from troupe.evaluation.estimators import (
    Estimate,
    average,
    paired_difference,
    pass_at_k,
    proportion,
)
from troupe.evaluation.scores import FAILURE_KINDS, Score

Scores = Sequence[Score]


@dataclass(frozen=True, slots=True)
class AgentSummary:
    """One agent of a policy's team. ``reward`` is the mean over episodes of the sum in each."""

    reward: Estimate
    terms: Mapping[str, float]
    actions_mean: float


@dataclass(frozen=True, slots=True)
class PolicySummary:
    """All figures of one policy; estimates are None when nothing was played.

    ``pass_at_k`` is over the tasks that have at least k played samples.
    """

    policy: str
    seats: Mapping[str, str]
    num_tasks: int
    num_samples: int
    num_played: int
    num_errors: int
    success: Estimate | None
    pass_at_k: Mapping[int, Estimate]
    team_return: Estimate | None
    agents: Mapping[str, AgentSummary]
    turns_mean: float | None
    turns_max: int
    tokens_mean: float | None
    prompt_tokens_mean: float | None
    tokens_total: int
    wall_s_mean: float | None
    failures: Mapping[str, int]
    faulty_actions: Mapping[str, float]
    outcomes: Mapping[str, int]
    last_error: str


@dataclass(frozen=True, slots=True)
class Comparison:
    """Success of ``policy`` minus that of ``against``, task by task."""

    policy: str
    against: str
    difference: Estimate


def summarize(policy: str, seats: Mapping[str, str], scores: Scores) -> PolicySummary:
    """The summary of one policy's scores, one for each sample."""
    played = [s for s in scores if s.is_played]
    tasks = by_task(played)
    failures = Counter(s.failure for s in scores if s.failure)
    errors = [s.error for s in scores if not s.is_played]
    return PolicySummary(
        policy=policy,
        seats=dict(seats),
        num_tasks=len({s.task_index for s in scores}),
        num_samples=len(scores),
        num_played=len(played),
        num_errors=len(errors),
        success=proportion(_clusters(tasks, lambda s: float(s.is_success))),
        pass_at_k=_pass_at_k(tasks),
        team_return=average(_clusters(tasks, lambda s: s.team_return)),
        agents=_agents(tasks, played),
        turns_mean=_mean([s.num_turns for s in played]),
        turns_max=max((s.num_turns for s in played), default=0),
        tokens_mean=_mean([s.num_tokens for s in played]),
        prompt_tokens_mean=_mean([s.num_prompt_tokens for s in played]),
        tokens_total=sum(s.num_tokens for s in played),
        wall_s_mean=_mean([s.wall_s for s in played]),
        failures={kind: failures[kind] for kind in FAILURE_KINDS if failures[kind]},
        faulty_actions=_faulty_actions(played),
        outcomes=dict(Counter(s.outcome for s in played if s.outcome).most_common()),
        last_error=errors[-1] if errors else "",
    )


def compare(against: tuple[str, Scores], policy: tuple[str, Scores]) -> Comparison | None:
    """The paired difference over tasks that both played; None when there is no such task."""
    first, second = (by_task([s for s in scores if s.is_played]) for _, scores in (against, policy))
    shared = sorted(first.keys() & second.keys())
    difference = paired_difference(
        [[float(s.is_success) for s in first[task]] for task in shared],
        [[float(s.is_success) for s in second[task]] for task in shared],
    )
    return Comparison(policy[0], against[0], difference) if difference else None


def by_task(scores: Scores) -> dict[int, list[Score]]:
    """Scores by task index, samples in order."""
    scores_by_task: defaultdict[int, list[Score]] = defaultdict(list)
    for score in sorted(scores, key=lambda s: (s.task_index, s.sample)):
        scores_by_task[score.task_index].append(score)
    return dict(scores_by_task)


def _clusters(
    tasks: Mapping[int, list[Score]], value: Callable[[Score], float]
) -> list[list[float]]:
    return [[value(score) for score in scores] for scores in tasks.values()]


def _pass_at_k(tasks: Mapping[int, list[Score]]) -> dict[int, Estimate]:
    """For k = 1, 2, 4, ... and the number of samples itself."""
    most = max((len(scores) for scores in tasks.values()), default=0)
    sizes = sorted({*(2**i for i in range(most.bit_length())), most} - {0})
    estimates: dict[int, Estimate] = {}
    for k in sizes:
        values = [
            [pass_at_k(len(scores), sum(s.is_success for s in scores), k)]
            for scores in tasks.values()
            if len(scores) >= k
        ]
        estimate = proportion(values)
        if estimate is not None:
            estimates[k] = estimate
    return estimates


def _agents(tasks: Mapping[int, list[Score]], played: Scores) -> dict[str, AgentSummary]:
    names = sorted({agent for score in played for agent in (*score.rewards, *score.num_actions)})
    summaries: dict[str, AgentSummary] = {}
    for agent in names:
        reward = average(_clusters(tasks, lambda s, a=agent: s.rewards.get(a, 0.0)))
        assert reward is not None
        terms = sorted({term for score in played for term in score.terms.get(agent, {})})
        summaries[agent] = AgentSummary(
            reward=reward,
            terms={
                term: sum(s.terms.get(agent, {}).get(term, 0.0) for s in played) / len(played)
                for term in terms
            },
            actions_mean=sum(s.num_actions.get(agent, 0) for s in played) / len(played),
        )
    return summaries


def _faulty_actions(played: Scores) -> dict[str, float]:
    """Share of all executed actions that show each fault."""
    num_actions = sum(sum(s.num_actions.values()) for s in played)
    faults: Counter[str] = Counter()
    for score in played:
        faults.update(score.faults)
    return {kind: count / num_actions for kind, count in sorted(faults.items())}


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None
