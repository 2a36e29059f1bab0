"""A recorded episode for display: turns, siblings, reward parts, advantages, tokens.

Never writes. A line of episodes.jsonl and the job's parts in, REST documents out.
"""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from troupe.algorithms.algorithm import Remembering, advantages_by_policy
from troupe.algorithms.base import GroupRelative
from troupe.candidates import GroupOutcome, Sample
from troupe.clients.rest.models.episode_tree import (
    CandidateDocument,
    EpisodeTaskDocument,
    GroupDocument,
    RewardPartDocument,
    TurnDocument,
)
from troupe.episodes.build import JobParts
from troupe.errors import InvalidArgumentError
from troupe.spec import JobSpec
from troupe_router.run.token_texts import token_texts
from troupe_router.run.trained_groups import Advantages

Line = Mapping[str, Any]
Origin = Literal["trainer", "rewards", "untrained"]
"""Where advantages come from: the trainer's own record; the recorded rewards, while there is none;
"untrained" is a group of a trained step that the trainer did not learn from."""
_ROUNDING = 1e-5
"""Recorded rewards have six decimals."""


@dataclass(frozen=True, slots=True)
class Credit:
    """Advantages of one group in index order, and where they come from; both None: not known."""

    advantages: Sequence[float] | None = None
    origin: Origin | None = None


def episode_turns(
    line: Line, spec: JobSpec, parts: JobParts | None, credits_by_group: Mapping[str, Credit]
) -> list[TurnDocument]:
    """The groups of ``line`` by turn; those not in ``credits_by_group`` have unknown credit.

    Without ``parts`` no terms of rewards are shown.
    """
    turns: dict[int, list[GroupDocument]] = {}
    for group in line.get("groups") or []:
        shown = _group(group, spec, parts, credits_by_group.get(group["group_id"], Credit()))
        turns.setdefault(group["turn"], []).append(shown)
    return [TurnDocument(turn=turn, groups=groups) for turn, groups in sorted(turns.items())]


def episode_task(line: Line, spec: JobSpec) -> EpisodeTaskDocument:
    """The task instance of ``line``, as its id names it: family/split/index."""
    _, _, place = str(line["task_id"]).rpartition("/")
    split = str(line["task_id"]).split("/")[-2] if "/" in line["task_id"] else ""
    return EpisodeTaskDocument(
        task_id=line["task_id"],
        name=spec.task.name,
        params=spec.task.params,
        split=split,
        index=int(place) if place.isdigit() else 0,
    )


def is_step_wide(parts: JobParts) -> bool:
    """Whether an advantage depends on the other groups of the step."""
    across_groups = getattr(type(parts.algorithm), "across_groups", None)
    return across_groups is not GroupRelative.across_groups or parts.algorithm.needs.team


def trained_credits(line: Line, spec: JobSpec, trained: Advantages) -> dict[str, Credit]:
    """The credits of the groups of ``line`` in a step that the trainer has recorded.

    A group without recorded advantages (the file is of an earlier version) is left out.
    """
    credits_by_group: dict[str, Credit] = {}
    for group in line.get("groups") or []:
        name, size = group["group_id"], len(group["candidates"])
        advantages = trained.get(name, ())
        if advantages is not None and len(advantages) == size and spec.trains(group["policy"]):
            credits_by_group[name] = Credit(advantages, "trainer")
        elif advantages is not None:
            credits_by_group[name] = Credit(None, "untrained")
    return credits_by_group


def step_advantages(lines: Sequence[Line], parts: JobParts) -> dict[str, list[float]]:
    """Advantages by group id, from recorded rewards, as the trainer's algorithm computes them.

    ``lines`` are all training episodes of one step, or only the wanted one for an algorithm that
    is not step-wide. Nothing when the algorithm fails, or an advantage holds what only the trainer
    subtracts or knows: a KL in the reward, the penalty of long completions, a critic's values,
    ratios, what an algorithm remembers of earlier steps, or weights of terms, which lines do not
    hold.
    """
    kl, needs = parts.spec.algorithm.loss.kl, parts.algorithm.needs
    if (kl.coef > 0.0 and kl.where == "reward") or needs.values or needs.log_ratios:
        return {}
    if parts.spec.algorithm.overlong is not None:
        return {}
    if needs.terms:  # lines hold no weights of terms
        return {}
    if isinstance(parts.algorithm, Remembering):
        return {}
    by_policy: dict[str, list[GroupOutcome]] = {}
    for line in lines:
        for group in line.get("groups") or []:
            if parts.spec.trains(group["policy"]):
                by_policy.setdefault(group["policy"], []).append(_outcome(group))
    for groups in by_policy.values():
        groups.sort(key=lambda group: group.group_id)
    try:
        values = advantages_by_policy(parts.algorithm, by_policy)
    except InvalidArgumentError:  # the trainer says what is wrong with the job's algorithm
        return {}
    return {
        group.group_id: advantages
        for policy, groups in by_policy.items()
        for group, advantages in zip(groups, values[policy], strict=True)
    }


def _outcome(group: Line) -> GroupOutcome:
    return GroupOutcome(
        group_id=group["group_id"],
        agent=group["agent"],
        turn=group["turn"],
        candidates=[
            Sample(
                index=c["index"],
                reward=c["reward"],
                num_tokens=_num_tokens(c),
                is_truncated=bool(c.get("is_truncated")),
                trajectory=c.get("trajectory", 0),
                turn=c["turn"],
                is_baseline=bool(c.get("is_baseline")),
                prompt_digest=str(c.get("prompt", "")),  # its place among the group's prompts
            )
            for c in group["candidates"]
        ],
        node=group.get("node", ""),
        lead_returns=tuple(group.get("lead_returns", ())),
    )


def _num_tokens(candidate: Line) -> int:
    """Its length; lines of earlier versions hold it only through their tokens."""
    return int(candidate.get("num_tokens") or len((candidate.get("tokens") or {}).get("ids", ())))


def _group(group: Line, spec: JobSpec, parts: JobParts | None, credit: Credit) -> GroupDocument:
    candidates: list[Line] = group["candidates"]
    rewards = [float(c["reward"]) for c in candidates]
    spans_turns = "prompts" in group
    advantages = credit.advantages or [None] * len(candidates)
    return GroupDocument(
        group_id=group["group_id"],
        agent=group["agent"],
        turn=group["turn"],
        policy=group["policy"],
        policy_version=group["policy_version"],
        spans_turns=spans_turns,
        tools=group.get("tools") or [],
        prompts=group["prompts"] if spans_turns else [group.get("prompt") or []],
        generate_s=group.get("generate_s"),
        env_s=group.get("env_s"),
        reward_mean=statistics.fmean(rewards) if rewards else 0.0,
        reward_std=statistics.stdev(rewards) if len(rewards) > 1 else 0.0,
        is_flat=len(set(rewards)) <= 1,
        advantages_from=credit.origin,
        candidates=[
            _candidate(c, group, spec, parts, advantage)
            for c, advantage in zip(candidates, advantages, strict=True)
        ],
    )


def _candidate(
    candidate: Line, group: Line, spec: JobSpec, parts: JobParts | None, advantage: float | None
) -> CandidateDocument:
    return CandidateDocument(
        index=candidate["index"],
        turn=candidate["turn"],
        trajectory=candidate.get("trajectory", 0),
        prompt=candidate.get("prompt", 0),
        text=candidate["text"],
        reward=candidate["reward"],
        team_reward=candidate["team_reward"],
        reward_parts=reward_parts(candidate, group["agent"], parts) if parts else [],
        advantage=advantage,
        is_chosen=candidate["is_chosen"],
        is_done=candidate["is_done"],
        is_success=candidate["is_success"],
        is_truncated=bool(candidate.get("is_truncated")),
        generate_s=candidate.get("generate_s"),
        env_s=candidate.get("env_s"),
        info=candidate.get("info"),
        tokens=token_texts(candidate.get("tokens"), spec.policies[group["policy"]].model),
    )


def reward_parts(candidate: Line, agent: str, parts: JobParts) -> list[RewardPartDocument]:
    """The terms of a reward; the last, "elsewhere", is the share of other turns or agents."""
    spec = parts.spec.reward
    weights = {**parts.family.local_terms.get(agent, {}), **spec.weights.get(agent, {})}
    terms = [("team", float(candidate["team_reward"]), spec.team_weight)]
    for name, value in (candidate.get("local_rewards") or {}).items():
        terms.append((name, float(value), float(weights.get(name, 0.0))))
    rest = float(candidate["reward"]) - sum(value * weight for _, value, weight in terms)
    if abs(rest) > _ROUNDING * (1 + len(terms)):
        terms.append(("elsewhere", rest, 1.0))
    return [
        RewardPartDocument(
            term=name, value=value, weight=weight, contribution=round(value * weight, 6)
        )
        for name, value, weight in terms
    ]
