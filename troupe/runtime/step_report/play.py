"""The router's metrics of a round, a step and an evaluation: one field declares one metric.

A field's declaration gives its meaning, its unit, its Prometheus series and its chart. The play,
trainer and step parts share one line of metrics.jsonl, so `catalogue.py` refuses a name twice.
"""

# ruff: noqa: RUF009 (a declaration is a call that makes the field of a dataclass)
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from troupe.runtime.step_report.metric import (
    ByKey,
    Count,
    Curve,
    Metric,
    Number,
    Part,
    Series,
    Source,
    number,
    numbers,
    same_as,
)

_SUCCESS = "troupe_job_success_ratio"

# Of training rounds and evaluations alike.
_DROPPED = Metric("Episodes that could not be played to their end.", "count")
_RETURN = Metric("Mean team return of an episode.", "number")
_SUSPECT = Metric("The reward rose while a witness fell (the event reward.suspect).", "flag")
_PROGRAM_RUNS = Metric(
    "Agent programs that ended, of all candidates; a failed attempt to play a ticket is one.",
    "count",
    is_optional=True,
)
_PROGRAM_FAILED = Metric(
    "Share of the agent programs that did not return an answer.",
    "share",
    is_optional=True,
)
_TURNS = Metric("Mean turns of an episode.", "count", curve=Curve("turns", "turns"))


@dataclass(frozen=True, slots=True, kw_only=True)
class PlayPart(Part):
    """Metrics of the episodes of one round, without those that were dropped."""

    measured_by: ClassVar[Source] = "play"

    num_episodes: Count = number("Episodes that were played.", "count")
    num_dropped: Count = same_as(_DROPPED)
    success_rate: Number = number(
        "Share of the episodes that solve their task.",
        "share",
        series=Series(_SUCCESS, {"kind": "train"}),
        curve=Curve("success", "training"),
    )
    reward_mean: Number = number("Mean reward of the candidates that were played.", "number")
    reward_by_agent: ByKey = numbers(
        "Mean reward of each agent's candidates that were played.",
        "number",
        series=Series("troupe_job_reward_mean", keys=("agent",)),
        curve=Curve("reward"),
        tracked_as="reward",
    )
    reward_by_term: Mapping[str, ByKey] = numbers(
        "Mean of each reward term of each agent, before they are mixed.",
        "number",
        curve=Curve("parts"),
        tracked_as="reward_term",
    )
    return_mean: Number = same_as(_RETURN)
    turns_mean: Number = same_as(_TURNS)
    num_groups: Count = number("Groups of the played episodes.", "count")
    num_redraws: Count = number("Tasks that were played for nothing and drawn again.", "count")
    num_tokens: Count = number(
        "Sampled tokens.", "tokens", series=Series("troupe_job_tokens_total", {"kind": "sampled"})
    )
    cached_token_ratio: Number = number(
        "Share of the prompt tokens that engines had cached.", "share"
    )
    tokens_per_s: Number = number(
        "Sampled tokens over the time in which something was generated.",
        "tokens/s",
        curve=Curve("tokens", "sampled"),
    )
    answer_diversity: ByKey = numbers(
        "Chance that an agent's answers to two different prompts differ.",
        "share",
        curve=Curve("diversity"),
        tracked_as="answer_diversity",
    )
    strict_agreement: Number = number(
        "Share of the pairs of a group that the strict judge orders as the reward does.",
        "share",
        curve=Curve("diversity", "agreement with the strict judge"),
        is_optional=True,
    )
    num_program_runs: Count = same_as(_PROGRAM_RUNS)
    program_failed: Number = same_as(_PROGRAM_FAILED)
    program_failures: ByKey = numbers(
        "Share of the agent programs that failed, by how.",
        "share",
        curve=Curve("programs"),
        tracked_as="program_failures",
        is_optional=True,
    )
    is_suspect: bool | None = same_as(_SUSPECT)
    play_s: Number = number("Wall time of the round.", "seconds")
    num_draws: Count = number("Calls of engines, each for the candidates of a prompt.", "count")
    tail_draws: Count = number("Draws that ended in the round's tail.", "count")
    tail_s: Number = number(
        "The round's tail: time from which on at most an eighth of the most draws at once ran.",
        "seconds",
        curve=Curve("tail", "tail"),
    )
    num_cut: Count = number(
        "Episodes that were dropped because of limits.tail_timeout_s.", "count", is_optional=True
    )
    replica_idle: ByKey = numbers(
        "Share of the time of drawing in which a replica drew nothing.",
        "share",
        curve=Curve("idle"),
        tracked_as="replica_idle",
        is_optional=True,
    )

    generate_s: float = 0.0
    """Seconds in which something was generated."""
    env_s: float = 0.0
    """Seconds in which environments judged and nothing was generated."""
    is_by_episode: bool | None = None
    """Whether the rewards are those of episodes; else of candidates, as a player of 0.1.0 tells."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepPart(Part):
    """The router's metrics of a whole step."""

    measured_by: ClassVar[Source] = "router"

    phases: Mapping[str, float] = numbers(
        "Wall time of the step by phase; the phases sum to wall_s.",
        "seconds",
        series=Series("troupe_job_phase_seconds_total", keys=("phase",)),
        curve=Curve("phases"),
        tracked_as="time",
    )
    wall_s: Number = number(
        "Wall time of the step.", "seconds", series=Series("troupe_job_step_seconds")
    )
    eval_hidden_s: Number = number(
        "Seconds of the evaluation of the step's weights beside the round's tail and learning.",
        "seconds",
        is_optional=True,
    )
    busy_ratio: Number = number(
        "Share of the step in which something was generated or learnt.", "share"
    )
    interrupted: bool | None = number(
        "A process of the job died meanwhile, so wall_s holds its absence.", "flag"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalPart(Part):
    """Metrics of an evaluation, over the episodes that were not dropped."""

    measured_by: ClassVar[Source] = "play"

    success: Number = number(
        "Share of the evaluated tasks that are solved.",
        "share",
        series=Series(_SUCCESS, {"kind": "eval"}),
        curve=Curve("success", "evaluation", is_dotted=True),
    )
    num_tasks: Count = number("Tasks that were evaluated.", "count")
    num_dropped: Count = same_as(_DROPPED)
    reward_mean: Number = number(
        "Mean over episodes of what one brings an agent of its team, summed over its acts.",
        "number",
    )
    reward_by_agent: ByKey = numbers(
        "Mean over episodes of what one brings each agent: the team's reward and its own terms. "
        "A line without it has a reward_mean over candidates.",
        "number",
        curve=Curve("eval_reward"),
        tracked_as="eval/reward",
        is_optional=True,
    )
    return_mean: Number = same_as(_RETURN)
    turns_mean: Number = same_as(_TURNS)
    num_program_runs: Count = same_as(_PROGRAM_RUNS)
    program_failed: Number = same_as(_PROGRAM_FAILED)
    is_suspect: bool | None = same_as(_SUSPECT)
    wall_s: Number = number("Wall time of the evaluation.", "seconds")
