"""Why a step taught little or nothing, read from its answers, and what to change.

Owns the words for people; the numbers are the step report's. Pure.
"""

import json
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from troupe.api.records.v1 import records_pb2 as pb
from troupe.episodes.dryrun import PAY_ITS_ANSWERS
from troupe.episodes.groups import SHOWN_CHARS
from troupe.runtime.step_report.trainer import TRUNCATED_SHARE, TrainerPart
from troupe_trainer.samples import CreditedGroup

RAISE_LIMIT = (
    "Raise sampling.max_new_tokens (and max_tokens of a program's own calls, which lowers it; "
    "completion_tokens says how many were used), or have the prompts ask for shorter answers."
)
"""What to do against truncated completions."""
SPARSE_SHARE = 0.75
"""Share of groups without variance from which a step is worth a word."""
_EASIER = "; an agent after whom nothing follows needs easier tasks"
"""What else helps one that was paid 0: the last agent of the order has its own pay alone."""
_FEWEST = 8
"""Groups from which a share of them says something, and answers of one agent."""
_FAILED = {
    "truncated": "ran into the token limit",
    "format": "lacked the form that the task asks for",
    "illegal": "were not allowed",
    "wrong": "had the form and were wrong",
    "unpaid": "earned nothing for a reason that the task does not say",
}
_REMEDY = {
    "truncated": "",
    "format": "Give an example of the form in the prompt, pay the form, or take a model that "
    "follows it; easier tasks do not help.",
    "illegal": "Have the prompt say what is allowed, or pay an allowed answer.",
    "wrong": "Make the tasks easier, pay parts of the way, or take a stronger model.",
    "unpaid": "If they lack the form that the reward looks for, show it in the prompt, pay it, or "
    "take a model that follows it; else make the tasks easier.",
}


@dataclass(frozen=True, slots=True)
class _Answer:
    agent: str
    text: str
    reward: float
    is_solved: bool
    failure: str
    """Why it earned nothing, if it did."""


@dataclass(frozen=True, slots=True)
class FlatAdvice:
    """Why a step was flat: a ``cause`` to compare with an earlier step's, and words for people."""

    cause: str
    words: str


SOLVED = "solved"
"""The cause of a step whose every answer solved its task."""


def flat_advice(groups: Sequence[pb.Group], report: TrainerPart) -> FlatAdvice:
    """What to change after a step in which no group had an advantage: first what its answers show.

    ``groups`` are all valid ones of the step.
    """
    answers = [answer for group in groups for answer in _answers(group)]
    if not answers:
        dropped = ", ".join(f"{reason} {n}" for reason, n in sorted(report.groups_dropped.items()))
        return FlatAdvice(
            "dropped", f"No group was left to learn from (dropped: {dropped or 'none'})."
        )
    if all(answer.reward == 0.0 for answer in answers):
        return _of_unpaid(answers)
    if report.candidates_filtered and report.candidates_filtered == len(answers):
        words = f"All answers were left out by algorithm.filters.truncated. {RAISE_LIMIT}"
        return FlatAdvice("filtered", words)
    if is_truncated(report):
        share = f"{report.truncated_fraction:.0%} of the completions ran into the token limit"
        words = f"{share}, so their rewards judge unfinished answers. {RAISE_LIMIT}"
        return FlatAdvice("truncated", words)
    rewards = {answer.reward for answer in answers}
    if len(rewards) == 1 and all(answer.is_solved for answer in answers):
        words = f"Every answer was paid {rewards.pop():g} and solved its task: make them harder."
        return FlatAdvice(SOLVED, words)
    if len(rewards) == 1:
        words = (
            f"Every answer was paid {rewards.pop():g}, so the reward does not tell good ones from "
            f"bad ones: let it grade them. {_shown(answers[0])}"
        )
        return FlatAdvice("ungraded", words)
    if all(len(_different(group)) == 1 for group in groups):
        words = "All answers to one prompt were the same text: raise the temperature."
        return FlatAdvice("same_text", words)
    words = "Make the tasks easier or harder, raise group_size or the temperature, or set redraws."
    return FlatAdvice("equal", words)


def sparse_advice(groups: Sequence[pb.Group], report: TrainerPart, *, redraws: int) -> str:
    """What groups without variance cost in a step, and what to change; empty where they are few."""
    num_flat = report.groups_zero_variance or 0
    if report.is_flat or len(groups) < _FEWEST or num_flat < SPARSE_SHARE * len(groups):
        return ""
    earned = [(group.agent, _earned(group)) for group in groups]
    best: dict[str, float] = {}
    for agent, rewards in earned:
        best[agent] = max([*rewards, best.get(agent, -math.inf)])
    easy = sum(all(reward == best[agent] for reward in rewards) for agent, rewards in earned)
    ways = [] if redraws else ["set algorithm.redraws, which plays other tasks in their place"]
    ways.append("make the tasks harder" if 2 * easy >= num_flat else "make the tasks easier")
    ways.append("or take more tasks with a smaller group_size")
    return (
        f"{num_flat} of {len(groups)} groups had no variance: what was played for them taught "
        f"nothing. In {easy} groups every candidate earned the most that its agent was paid. To "
        f"learn from more, {', '.join(ways)}."
    )


def untaught_advice(credited: Sequence[CreditedGroup]) -> dict[str, str]:
    """Words on each agent that was paid the same for all that it did in a step.

    ``credited`` are the groups of policies that learn.
    """
    by_agent: dict[str, list[CreditedGroup]] = {}
    for group in credited:
        by_agent.setdefault(group.record.agent, []).append(group)
    return {
        agent: (
            f"every answer of agent '{agent}' was paid {min(rewards):g} ({len(groups)} groups), "
            f"so it learnt nothing: {PAY_ITS_ANSWERS}{'' if any(rewards) else _EASIER}."
        )
        for agent, groups in by_agent.items()
        if len(rewards := {paid for group in groups for paid in _earned(group.record)}) == 1
        and not any(group.has_signal for group in groups)
        and sum(len(_different(group.record)) for group in groups) >= max(_FEWEST, 2 * len(groups))
        and not all(c.is_success for group in groups for c in group.record.candidates)
    }


def _earned(group: pb.Group) -> list[float]:
    """The reward of each candidate; where a group holds whole episodes, the best of each one."""
    best: dict[int, float] = {}
    for candidate in group.candidates:
        if not candidate.is_baseline:
            of_episodes = group.key == pb.GROUP_KEY_TASK
            place = candidate.trajectory if of_episodes else candidate.index
            best[place] = max(candidate.reward, best.get(place, candidate.reward))
    return list(best.values())


def is_truncated(report: TrainerPart) -> bool:
    """Whether the token limit cut off most completions of the step."""
    return (report.truncated_fraction or 0.0) >= TRUNCATED_SHARE


def _of_unpaid(answers: Sequence[_Answer]) -> FlatAdvice:
    """What to do where nothing was paid: by what failed most among answers that were finished."""
    kinds = Counter(answer.failure for answer in answers)
    parts = ", ".join(f"{n} of {len(answers)} {_FAILED[kind]}" for kind, n in kinds.most_common())
    finished = Counter({kind: n for kind, n in kinds.items() if kind != "truncated"})
    most = (finished or kinds).most_common(1)[0][0]
    example = next(answer for answer in answers if answer.failure == most)
    limit = RAISE_LIMIT if kinds["truncated"] >= TRUNCATED_SHARE * len(answers) else ""
    sentences = (f"Every answer was paid 0: {parts}.", _shown(example), limit, _REMEDY[most])
    words = " ".join(sentence for sentence in sentences if sentence)
    return FlatAdvice(f"unpaid_{most}", words)


def _shown(answer: _Answer) -> str:
    """One answer, cut; what could change a terminal is escaped."""
    text = answer.text
    cut = "..." if len(text) > SHOWN_CHARS else ""
    return f"{answer.agent} wrote, for example: {text[:SHOWN_CHARS]!r}{cut}."


def _different(group: pb.Group) -> set[tuple[str, tuple[int, ...]]]:
    """The answers that differ: by their tokens where the group holds no more than a beginning."""
    return {
        (c.text, tuple(c.token_ids) if len(c.text) > SHOWN_CHARS else ())
        for c in group.candidates
        if not c.is_baseline
    }


def _answers(group: pb.Group) -> list[_Answer]:
    return [
        _Answer(group.agent, c.text, c.reward, c.is_success, _failure(c))
        for c in group.candidates
        if not c.is_baseline
    ]


def _failure(candidate: pb.Candidate) -> str:
    """Why an answer earned nothing: cut off, else what the environment reports."""
    if candidate.finish_reason == pb.FINISH_REASON_LENGTH:
        return "truncated"
    try:
        info = json.loads(candidate.info_json or "{}")
    except ValueError:
        return "unpaid"
    reported = info.get("failure") if isinstance(info, dict) else None
    if reported in _FAILED:
        return str(reported)
    for term, kind in (("format", "format"), ("legal", "illegal")):
        if candidate.local_rewards.get(term, 0.0) < 0.0:
            return kind
    return "unpaid"
