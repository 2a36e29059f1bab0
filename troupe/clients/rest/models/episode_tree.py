"""REST models of one episode: its turns, groups and candidates."""

from typing import Any, Literal

from pydantic import ConfigDict, Field

from troupe.clients.rest.models.base import Document, JsonObject
from troupe.clients.rest.models.episodes import EpisodeKind, EpisodeRowDocument


class ContentPartDocument(Document):
    """A piece of a message with images: a text, or an image by its digest and its size."""

    text: str = ""
    """The text; empty of an image."""
    digest: str | None = None
    """Of an image: `GET .../episodes/images/{digest}` gives it."""
    width: int | None = None
    """Its pixels in a row."""
    height: int | None = None
    """Its rows."""


class ToolCallDocument(Document):
    """A function call of an assistant's message."""

    name: str
    """The function."""
    arguments: str
    """JSON text, as a model wrote it."""


class MessageDocument(Document):
    """One message of a prompt."""

    role: str
    """system, user, assistant or tool."""
    content: str
    """Its text, with the name of each image in its place: written by tasks and models, so never
    markup."""
    parts: list[ContentPartDocument] = Field(default_factory=list[ContentPartDocument])
    """Texts and images in order; empty where there is text alone."""
    tool_calls: list[ToolCallDocument] = Field(default_factory=list[ToolCallDocument])
    """Calls beside the text; messages of the role tool after it are their results."""


class RewardPartDocument(Document):
    """One term of a reward; the contributions sum to the reward."""

    term: str
    """team, or the name of a local term."""
    value: float
    """Unweighted."""
    weight: float
    """Its weight."""
    contribution: float
    """value * weight."""


class TokensDocument(Document):
    """A completion by token."""

    texts: list[str]
    """Piece of text of each token."""
    logprobs: list[float]
    """Log probability that it was sampled with."""


class CandidateDocument(Document):
    """One of the K siblings of a group."""

    index: int
    """Position in the group."""
    turn: int
    """Turn that it acted in."""
    trajectory: int
    """Independent episode that it belongs to."""
    prompt: int
    """Which of the group's prompts it continues."""
    text: str
    """The completion."""
    reward: float
    """Mixed reward."""
    team_reward: float
    """Shared reward, unweighted."""
    reward_parts: list[RewardPartDocument]
    """What the reward is made of; empty where the router does not load the job's task."""
    advantage: float | None = None
    """What it was worth to the trainer: see the group's ``advantages_from``; null: not known."""
    is_chosen: bool
    """The episode went on from it; of a tree of joint actions, its best line of play did."""
    is_done: bool
    """It ended the episode."""
    is_success: bool
    """It solved the task."""
    is_truncated: bool
    """It hit the token limit."""
    generate_s: float | None = None
    """Seconds of its Generate call, where its siblings do not share one."""
    env_s: float | None = None
    """Seconds of its Step call, where its siblings do not share one."""
    info: JsonObject | None = None
    """The environment's notes, of executed candidates."""
    tokens: TokensDocument | None = None
    """By token, when the run recorded it."""


class GroupDocument(Document):
    """K candidates that one advantage is computed over."""

    group_id: str
    """Its id."""
    agent: str
    """Who acted."""
    turn: int
    """When."""
    policy: str
    """Weights that sampled."""
    policy_version: int
    """Their version."""
    spans_turns: bool
    """True when the members have different prompts (no tree)."""
    prompts: list[list[MessageDocument]]
    """Prompts that the candidates continue."""
    tools: list[str] = Field(default_factory=list[str])
    """Names of the functions that the prompts offered."""
    generate_s: float | None = None
    """Seconds of the Generate call that the candidates share."""
    env_s: float | None = None
    """Seconds of the Step call that the candidates share."""
    reward_mean: float
    """Mean over the candidates."""
    reward_std: float
    """Standard deviation (n - 1) over the candidates."""
    is_flat: bool
    """All rewards are equal."""
    advantages_from: Literal["trainer", "rewards", "untrained"] | None = None
    """Who says the advantages: the trainer, as it learnt from them; the recorded rewards, until a
    checkpoint covers the step; "untrained" is a group of a covered step that nothing was learnt
    from; null where they are not known, and for evaluations."""
    candidates: list[CandidateDocument]
    """The siblings."""


class TurnDocument(Document):
    """One turn of an episode."""

    turn: int
    """Counted from 0."""
    groups: list[GroupDocument]
    """In the order in which the agents acted."""


class EpisodeTaskDocument(Document):
    """The task instance of an episode."""

    task_id: str
    """Its id."""
    name: str
    """Task family."""
    params: dict[str, Any]
    """Parameters of the family."""
    split: str
    """train, validation or test."""
    index: int
    """Place in the split."""


class EpisodeTwinDocument(Document):
    """The same task instance, played at another time."""

    id: str
    """For URLs."""
    kind: EpisodeKind
    """Why it was played."""
    step: int
    """The training step."""
    is_success: bool
    """Solved."""
    team_return: float
    """Sum of team rewards."""


class EpisodeDocument(EpisodeRowDocument):
    """One episode with its whole tree."""

    # The example of a row is none of a tree.
    model_config = ConfigDict(json_schema_extra=None)

    task: EpisodeTaskDocument
    """What was to be done."""
    turns: list[TurnDocument]
    """The tree, turn by turn."""
    others: list[EpisodeTwinDocument]
    """The same instance at other steps, newest first, at most 200."""
