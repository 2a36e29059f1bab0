"""REST models of a run's numbers: curves and steps."""

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field

from troupe.clients.rest.models.base import Document, Parameters
from troupe.clients.rest.models.progress import RoundDocument


class MetricsQuery(Parameters):
    """Which curves."""

    names: Annotated[list[str] | None, Field(max_length=200)] = None
    """Only these, or what begins so before a dot (`phases`); may repeat."""
    from_step: Annotated[int, Field(ge=0, le=10**9)] = 0
    """Only from this step on."""
    max_points: Annotated[int, Field(ge=1, le=100_000)] = 1000
    """Longer curves are shown as means of as many buckets."""


class StepPageQuery(Parameters):
    """Which steps."""

    limit: Annotated[int, Field(ge=1, le=1000)] = 50
    """Most steps of the page."""
    cursor: Annotated[str | None, Field(max_length=20)] = None
    """`next_cursor` of the page before."""


class SeriesDocument(Document):
    """Numbers over steps: ``series[name][i]`` is of step ``steps[i]``; None: not measured."""

    steps: list[int]
    """Training steps, ascending."""
    series: dict[str, list[float | None]]
    """By name; nested numbers have dotted names (phases.generate)."""


class MetricFieldDocument(Document):
    """What a metric is."""

    table: Literal["train", "eval"]
    """Which of the two tables of curves has it."""
    name: str
    """Its name there; of a mapping, what dotted names begin with."""
    source: str
    """Who measures it: play, trainer, loss, critic, demonstrations or router."""
    unit: str
    """Its unit; a share is from 0 to 1, a flag 0 or 1."""
    description: str
    """One sentence."""
    over_policies: str
    """How one number is made of several policies'."""


class MetricCurveDocument(Document):
    """One metric of a chart."""

    table: Literal["train", "eval"]
    name: str
    label: str
    is_dotted: bool
    by_policy: bool
    """A job of several policies has a curve of each instead."""


class MetricPanelDocument(Document):
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
    curves: list[MetricCurveDocument]


class MetricsDocument(Document):
    """A job's curves."""

    model_config = ConfigDict(
        json_schema_extra={
            "example": {
                "job_id": "demo-1",
                "train": {"steps": [0, 1], "series": {"reward_mean": [0.31, 0.35]}},
                "eval": {"steps": [0], "series": {"success": [0.14]}},
                "names": ["reward_mean", "success"],
                "unknown": [],
                "fields": [
                    {
                        "table": "train",
                        "name": "reward_mean",
                        "source": "play",
                        "unit": "number",
                        "description": "Mean reward of the candidates that were played.",
                        "over_policies": "measured once, of the whole step",
                    }
                ],
                "panels": [],
            }
        }
    )

    job_id: str
    """The job."""
    train: SeriesDocument
    """One point a training step."""
    eval: SeriesDocument
    """One point an evaluation."""
    names: list[str]
    """Every name that there is, whatever was asked for."""
    unknown: list[str] = Field(default_factory=list[str])
    """Names that were asked for and that no line has, or none yet."""
    fields: list[MetricFieldDocument] = Field(default_factory=list[MetricFieldDocument])
    """What each metric is; empty where names were asked for."""
    panels: list[MetricPanelDocument] = Field(default_factory=list[MetricPanelDocument])
    """The charts of the web page; empty where names were asked for."""


class StepPage(Document):
    """Training steps as metrics.jsonl has them, newest first."""

    steps: list[dict[str, Any]]
    """The lines."""
    next_cursor: str | None = None
    """`cursor` of the next page; null on the last."""


class EpisodeCountsDocument(Document):
    """Recorded training episodes of a step."""

    num: int
    """All."""
    num_success: int
    """Solved by every trajectory."""
    num_dropped: int
    """Given up after errors of machines."""


class StepDocument(Document):
    """One training step."""

    step: int
    """Counted from 0."""
    state: Literal["recorded", "open", "to_come"]
    """recorded: its line is written; open: at work."""
    train: dict[str, Any] | None = None
    """Its line of metrics.jsonl."""
    eval: dict[str, Any] | None = None
    """The line of the evaluation before it, when there was one."""
    round: RoundDocument | None = None
    """Counters while it is at work."""
    trained_groups: dict[str, int]
    """Groups that were learnt from, by policy, once a checkpoint covers them."""
    episodes: EpisodeCountsDocument
    """What episodes.jsonl holds of it."""
