"""What the REST API says of a job's run: series, steps, episodes, checkpoints, logs.

Owns field names and types. Never talks to a router.
"""

from typing import Any, Literal

from pydantic import Field

from troupe.clients.rest.models import Answer, Round


class Series(Answer):
    """Numbers over steps: ``series[name][i]`` is of step ``steps[i]``; None: not measured."""

    steps: list[int]
    """Training steps, ascending."""
    series: dict[str, list[float | None]]
    """By name; nested numbers have dotted names (phases.generate)."""


class MetricField(Answer):
    """What a metric is."""

    table: Literal["train", "eval"]
    """Which of the two tables of curves has it."""
    name: str
    """Its name there; of a mapping, what dotted names begin with."""
    source: str
    """Who measures it: play, trainer, loss, critic or router."""
    unit: str
    """Its unit; a share is from 0 to 1, a flag 0 or 1."""
    description: str
    """One sentence."""
    over_policies: str
    """How one number is made of several policies'."""


class MetricCurve(Answer):
    """One metric of a chart."""

    table: Literal["train", "eval"]
    name: str
    label: str
    is_dotted: bool
    by_policy: bool
    """A job of several policies has a curve of each instead."""


class MetricPanel(Answer):
    """One chart of the web page."""

    id: str
    group: str
    title: str
    hint: str
    unit: str
    """That of all its curves, or `number`."""
    is_wide: bool
    is_stacked: bool
    is_optional: bool
    range: tuple[float, float] | None
    empty_text: str
    keys: list[str]
    """The order of a mapping's curves."""
    curves: list[MetricCurve]


class Metrics(Answer):
    """A job's curves."""

    job_id: str
    """The job."""
    train: Series
    """One point a training step."""
    eval: Series
    """One point an evaluation."""
    names: list[str]
    """Every name that there is, whatever was asked for."""
    unknown: list[str] = Field(default_factory=list[str])
    """Names that were asked for and that no line has, or none yet."""
    fields: list[MetricField] = Field(default_factory=list[MetricField])
    """What each metric is; empty where names were asked for."""
    panels: list[MetricPanel] = Field(default_factory=list[MetricPanel])
    """The charts of the web page; empty where names were asked for."""


class StepPage(Answer):
    """Training steps as metrics.jsonl has them, newest first."""

    steps: list[dict[str, Any]]
    """The lines."""
    next_cursor: str | None = None
    """`cursor` of the next page; null on the last."""


class EpisodeCounts(Answer):
    """Recorded training episodes of a step."""

    num: int
    """All."""
    num_success: int
    """Solved by every trajectory."""
    num_dropped: int
    """Given up after errors of machines."""


class Step(Answer):
    """One training step."""

    step: int
    """Counted from 0."""
    state: Literal["recorded", "open", "to_come"]
    """recorded: its line is written; open: at work."""
    train: dict[str, Any] | None = None
    """Its line of metrics.jsonl."""
    eval: dict[str, Any] | None = None
    """The line of the evaluation before it, when there was one."""
    round: Round | None = None
    """Counters while it is at work."""
    trained_groups: dict[str, int]
    """Groups that were learnt from, by policy, once a checkpoint covers them."""
    episodes: EpisodeCounts
    """What episodes.jsonl holds of it."""


class AgentRewards(Answer):
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


class EpisodeRow(Answer):
    """One recorded episode in a list."""

    id: str
    """For URLs: train-00004-00017."""
    episode_id: str
    """As in episodes.jsonl."""
    round_id: str
    """The round."""
    kind: Literal["train", "eval"]
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
    failure: Literal["dropped", "truncated", "unsolved"] | None = None
    """dropped; else truncated: an executed completion hit its token limit; else unsolved."""
    num_groups: int
    """Groups."""
    num_candidates: int
    """Candidates of all groups."""
    agents: dict[str, AgentRewards]
    """By agent."""


class EpisodePage(Answer):
    """Recorded episodes that match a filter."""

    episodes: list[EpisodeRow]
    """The page."""
    next_cursor: str | None = None
    """`cursor` of the next page; null on the last."""
    total: int
    """How many match."""
    is_complete: bool
    """False while the index catches up with the file."""


class Message(Answer):
    """One message of a prompt."""

    role: str
    """system, user, assistant or tool."""
    content: str
    """Its text: written by tasks and models, so never markup."""


class RewardPart(Answer):
    """One term of a reward; the contributions sum to the reward."""

    term: str
    """team, or the name of a local term."""
    value: float
    """Unweighted."""
    weight: float
    """Its weight."""
    contribution: float
    """value * weight."""


class Tokens(Answer):
    """A completion by token."""

    texts: list[str]
    """Piece of text of each token."""
    logprobs: list[float]
    """Log probability that it was sampled with."""


class Candidate(Answer):
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
    reward_parts: list[RewardPart]
    """What the reward is made of."""
    advantage: float | None = None
    """What it was worth to the trainer: see the group's ``advantages_from``; null: not known."""
    is_chosen: bool
    """The episode went on from it."""
    is_done: bool
    """It ended the episode."""
    is_success: bool
    """It solved the task."""
    is_truncated: bool
    """It hit the token limit."""
    info: dict[str, Any] | None = None
    """The environment's notes, of executed candidates."""
    tokens: Tokens | None = None
    """By token, when the run recorded it."""


class Group(Answer):
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
    prompts: list[list[Message]]
    """Prompts that the candidates continue."""
    generate_s: float | None = None
    """Seconds of the Generate call."""
    env_s: float | None = None
    """Seconds of the Step call."""
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
    candidates: list[Candidate]
    """The siblings."""


class Turn(Answer):
    """One turn of an episode."""

    turn: int
    """Counted from 0."""
    groups: list[Group]
    """In the order in which the agents acted."""


class EpisodeTask(Answer):
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


class EpisodeTwin(Answer):
    """The same task instance, played at another time."""

    id: str
    """For URLs."""
    kind: Literal["train", "eval"]
    """Why it was played."""
    step: int
    """The training step."""
    is_success: bool
    """Solved."""
    team_return: float
    """Sum of team rewards."""


class Episode(EpisodeRow):
    """One episode with its whole tree."""

    task: EpisodeTask
    """What was to be done."""
    turns: list[Turn]
    """The tree, turn by turn."""
    others: list[EpisodeTwin]
    """The same instance at other steps, newest first, at most 200."""


class CheckpointPolicy(Answer):
    """A policy in a checkpoint."""

    policy: str
    """The policy."""
    version: int | None = None
    """Its version."""
    trains: bool
    """False for past versions and frozen opponents."""
    formats: list[Literal["peft", "merged", "state"]]
    """What can be downloaded."""
    size_bytes: int
    """All of its files."""


class Checkpoint(Answer):
    """Weights that can be downloaded."""

    id: str
    """step-00012, or final: the exported policies."""
    step: int
    """Learned steps in it."""
    created_at: float
    """When it was written."""
    size_bytes: int
    """All of its files."""
    policies: list[CheckpointPolicy]
    """By policy."""


class CheckpointList(Answer):
    """Checkpoints of a job, newest first."""

    checkpoints: list[Checkpoint]
    """The exported policies first."""


class LogFile(Answer):
    """The log of one process of a job."""

    component: str
    """Its name: trainer-0, rollout-shared-0, env-0."""
    size_bytes: int
    """Size."""
    modified_at: float
    """Last written."""


class LogList(Answer):
    """Logs of a job's processes."""

    components: list[LogFile]
    """By name."""


class LogPage(Answer):
    """Lines of a log."""

    component: str
    """Whose."""
    lines: list[str]
    """Whole lines."""
    start: int
    """Byte at which the first line begins."""
    next: int
    """`after` of the next page."""
    size_bytes: int
    """Size of the log now."""
