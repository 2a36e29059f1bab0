"""The score of one played sample, read from its line of episodes.jsonl.

Pure. Classifies why a sample failed; an unplayed sample has an error and no score.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from troupe.rewards.mix import RewardMix, terms_by_agent

FailureKind = Literal["truncated", "format", "illegal", "wrong", "error"]
FAILURE_KINDS: tuple[FailureKind, ...] = ("truncated", "format", "illegal", "wrong", "error")
_FAULTS: tuple[FailureKind, ...] = ("truncated", "format", "illegal")
"""Faults of one action, in order of precedence as the cause of a failure."""

Flawless = Mapping[str, Mapping[str, float]]
"""agent -> term -> reward of a demonstration: less "format" or "legal" is a fault."""


@dataclass(frozen=True, slots=True)
class Score:
    """One sample of one policy. Unplayed: ``failure`` is "error" and ``error`` says why.

    ``rewards`` are each agent's sums over the episode, ``terms`` the unweighted ones; ``faults``
    counts executed actions.
    """

    task_index: int
    sample: int
    is_success: bool = False
    failure: FailureKind | None = None
    error: str = ""
    team_return: float = 0.0
    num_turns: int = 0
    num_prompt_tokens: int = 0
    num_tokens: int = 0
    wall_s: float = 0.0
    outcome: str = ""
    rewards: Mapping[str, float] = field(default_factory=dict[str, float])
    terms: Mapping[str, Mapping[str, float]] = field(default_factory=dict[str, Mapping[str, float]])
    num_actions: Mapping[str, int] = field(default_factory=dict[str, int])
    faults: Mapping[str, int] = field(default_factory=dict[str, int])

    @property
    def is_played(self) -> bool:
        """False when every attempt met an infrastructure failure."""
        return self.failure != "error"


def read_score(line: Mapping[str, Any], mix: RewardMix, flawless: Flawless) -> Score:
    """The score of an evaluation's line."""
    task_index, sample = int(line["task_index"]), int(line["sample"])
    if line.get("failure") == "error":
        return Score(task_index, sample, failure="error", error=str(line["errors"][-1]))
    rewards: defaultdict[str, float] = defaultdict(float)
    terms: defaultdict[str, defaultdict[str, float]] = defaultdict(lambda: defaultdict(float))
    actions, faults = Counter[str](), Counter[str]()
    last: Mapping[str, Any] = {}
    for agent, act in _acts(line):
        actions[agent] += 1
        faults.update(fault_kinds(agent, act, flawless))
        rewards[agent] += act["reward"]
        for owner, agent_terms in terms_by_agent(agent, act["local_rewards"]).items():
            for name, value in agent_terms.items():
                terms[owner][name] += value
            if owner != agent:
                rewards[owner] += mix(owner, 0.0, agent_terms)
        last = act.get("info") or {}
    return Score(
        task_index=task_index,
        sample=sample,
        is_success=bool(line["is_success"]),
        failure=line.get("failure"),
        team_return=float(line["team_return"]),
        num_turns=int(line["num_turns"]),
        num_prompt_tokens=int(line.get("num_prompt_tokens") or 0),
        num_tokens=int(line["num_tokens"]),
        wall_s=float(line["wall_s"]),
        outcome=str(last.get("outcome") or last.get("result") or ""),
        rewards=dict(rewards),
        terms={agent: dict(agent_terms) for agent, agent_terms in terms.items()},
        num_actions=dict(actions),
        faults=dict(faults),
    )


def failure_of(line: Mapping[str, Any], flawless: Flawless) -> FailureKind | None:
    """Why a played sample failed, or None when it did not.

    The first of these that any executed action shows: cut off at the token limit, malformed,
    illegal; "wrong" when every action was in order but did not solve the task.
    """
    if line["is_success"]:
        return None
    faults = {kind for agent, act in _acts(line) for kind in fault_kinds(agent, act, flawless)}
    for kind in _FAULTS:
        if kind in faults:
            return kind
    return "wrong"


def fault_kinds(agent: str, act: Mapping[str, Any], flawless: Flawless) -> set[FailureKind]:
    """Faults in the form of one action; the environment's own report takes precedence."""
    reported = (act.get("info") or {}).get("failure")
    if reported == "wrong":
        return set()
    if reported in _FAULTS:
        return {reported}
    if act.get("is_truncated"):
        return {"truncated"}
    paid, best = act["local_rewards"], flawless.get(agent, {})
    faults: set[FailureKind] = set()
    if paid.get("format", 0.0) < best.get("format", 0.0):
        faults.add("format")
    elif paid.get("legal", 0.0) < best.get("legal", 0.0):
        faults.add("illegal")
    return faults


def best_terms(line: Mapping[str, Any]) -> dict[str, dict[str, float]]:
    """The largest value of each agent's terms for one action in ``line``."""
    best: defaultdict[str, dict[str, float]] = defaultdict(dict)
    for agent, act in _acts(line):
        for name, value in act["local_rewards"].items():
            best[agent][name] = max(value, best[agent].get(name, value))
    return dict(best)


def _acts(line: Mapping[str, Any]) -> list[tuple[str, Mapping[str, Any]]]:
    """Every executed action with its agent, in playing order."""
    return [
        (group["agent"], candidate)
        for group in line["groups"]
        for candidate in group["candidates"]
        if candidate["is_chosen"]
    ]
