"""One recorded episode in a list: its row, its URL-safe id and its place in a job.

Pure. Owns the content of a row; ``episode_index`` stores rows, REST shows them.
"""

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from troupe.clients.rest.models.episodes import (
    AgentRewardsDocument,
    EpisodeRowDocument,
    Failure,
)

Line = Mapping[str, Any]

_COPIED = (
    "episode_id",
    "round_id",
    "kind",
    "step",
    "task_id",
    "is_success",
    "num_turns",
    "team_return",
    "num_tokens",
    "wall_s",
)


def short_id(episode_id: str) -> str:
    """ "demo-1/train-00004/00017" as written in URLs: "train-00004-00017"."""
    return "-".join(episode_id.split("/")[-2:])


def episode_row(line: Line) -> EpisodeRowDocument:
    """What a list shows of a line of episodes.jsonl."""
    groups: list[Line] = list(line.get("groups") or [])
    return EpisodeRowDocument(
        id=short_id(line["episode_id"]),
        **{name: line[name] for name in _COPIED},
        dropped_reason=line.get("dropped_reason"),
        failure=failure_of(line),
        num_groups=len(groups),
        num_candidates=sum(len(group["candidates"]) for group in groups),
        agents=_agents(groups),
    )


def failure_of(line: Line) -> Failure | None:
    """Why the task was not solved, or None: dropped, truncated (an executed text), unsolved."""
    if line.get("dropped_reason"):
        return "dropped"
    if line["is_success"]:
        return None
    executed = (c for g in line.get("groups") or [] for c in g["candidates"] if c["is_chosen"])
    return "truncated" if any(c.get("is_truncated") for c in executed) else "unsolved"


def mean_reward(row: EpisodeRowDocument) -> float | None:
    """Mean reward of all candidates of a row, or None when there are none."""
    agents = row.agents.values()
    count = sum(agent.num_candidates for agent in agents)
    if not count:
        return None
    return sum(agent.reward_mean * agent.num_candidates for agent in agents) / count


def _agents(groups: list[Line]) -> dict[str, AgentRewardsDocument]:
    rewards: defaultdict[str, list[float]] = defaultdict(list)
    policies: dict[str, str] = {}
    for group in groups:
        rewards[group["agent"]] += [c["reward"] for c in group["candidates"]]
        policies[group["agent"]] = group["policy"]
    return {
        agent: AgentRewardsDocument(
            policy=policies[agent],
            num_candidates=len(values),
            reward_mean=round(sum(values) / len(values), 6),
            reward_min=min(values),
            reward_max=max(values),
        )
        for agent, values in rewards.items()
        if values
    }
