"""REST models of recorded episodes in lists."""

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field

from troupe.clients.rest.models.base import Document, Parameters

EpisodeKind = Literal["train", "eval"]
Failure = Literal["dropped", "truncated", "unsolved"]
EpisodeOrder = Literal["newest", "oldest", "reward_desc", "reward_asc"]
_ROW: dict[str, Any] = {
    "id": "train-00004-00017",
    "episode_id": "demo-1/train-00004/00017",
    "round_id": "train-00004",
    "kind": "train",
    "step": 4,
    "task_id": "plan_path/train/145",
    "is_success": False,
    "num_turns": 4,
    "team_return": 0.5,
    "num_tokens": 612,
    "wall_s": 1.9,
    "dropped_reason": None,
    "failure": "unsolved",
    "num_groups": 8,
    "num_candidates": 64,
    "agents": {
        "tool": {
            "policy": "shared",
            "num_candidates": 32,
            "reward_mean": 0.4,
            "reward_min": 0.0,
            "reward_max": 1.1,
        }
    },
}


class EpisodeFilter(Parameters):
    """Which episodes. Rewards are means: of ``agent`` when it is given, else of the episode."""

    kind: EpisodeKind | None = None
    """Why they were played."""
    step: Annotated[int | None, Field(ge=0, le=10**9)] = None
    """Of this training step."""
    agent: Annotated[str | None, Field(max_length=100)] = None
    """Of this agent, whose rewards filter and order."""
    min_reward: Annotated[float | None, Field(allow_inf_nan=False)] = None
    """Of this mean reward or more."""
    max_reward: Annotated[float | None, Field(allow_inf_nan=False)] = None
    """Of this mean reward or less."""
    failure: Failure | Literal["any", "none"] | None = None
    """Why they were not solved; any: not solved; none: solved."""
    task_id: Annotated[str | None, Field(max_length=300)] = None
    """Of this task instance."""
    order: EpisodeOrder = "newest"
    """Newest or oldest first, or by mean reward."""


class EpisodePageQuery(EpisodeFilter):
    """A page of the episodes that match."""

    limit: Annotated[int, Field(ge=1, le=1000)] = 50
    """Most episodes of the page."""
    cursor: Annotated[str | None, Field(max_length=400)] = None
    """`next_cursor` of the page before, with the same filter."""


class AgentRewardsDocument(Document):
    """One agent's candidates in an episode."""

    policy: str
    """The policy that it sampled from."""
    num_candidates: int
    """All of them, siblings included."""
    reward_mean: float
    """Mean reward."""
    reward_min: float
    """Worst."""
    reward_max: float
    """Best."""


class EpisodeRowDocument(Document):
    """One recorded episode in a list."""

    model_config = ConfigDict(json_schema_extra={"example": _ROW})

    id: str
    """For URLs: train-00004-00017."""
    episode_id: str
    """As in episodes.jsonl."""
    round_id: str
    """The round."""
    kind: EpisodeKind
    """Why it was played."""
    step: int
    """The training step."""
    task_id: str
    """Family, split and index."""
    is_success: bool
    """Solved."""
    num_turns: int
    """Turns played."""
    team_return: float
    """Sum of team rewards of the executed actions."""
    num_tokens: int
    """Sampled tokens."""
    wall_s: float
    """Seconds."""
    dropped_reason: str | None = None
    """Why it was given up."""
    failure: Failure | None = None
    """dropped; else truncated: an executed completion hit its token limit; else unsolved."""
    num_groups: int
    """Groups."""
    num_candidates: int
    """Candidates of all groups."""
    agents: dict[str, AgentRewardsDocument]
    """By agent."""


class EpisodePage(Document):
    """Recorded episodes that match a filter."""

    episodes: list[EpisodeRowDocument]
    """The page."""
    next_cursor: str | None = None
    """`cursor` of the next page; null on the last."""
    total: int
    """How many match."""
    is_complete: bool
    """False while the index catches up with the file."""
