"""Each declared metric reaches every place that shows metrics, and none overwrites another."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar

import pytest
from page_scripts import said_by_node
from prometheus_client import REGISTRY

from troupe.cli import progress
from troupe.clients.rest.models.metrics import MetricsDocument
from troupe.runtime.step_report.catalogue import (
    METRICS,
    catalogue_document,
    declared,
    loss_metric_name,
)
from troupe.runtime.step_report.metric import Part, Source, number
from troupe.runtime.step_report.panels import PANELS
from troupe.runtime.step_report.play import EvalPart, PlayPart
from troupe.runtime.step_report.trainer import TrainerPart
from troupe.runtime.tracking.values import tracked_values
from troupe_router.run import job_metrics
from troupe_router.run.round_metrics import eval_line, train_line
from troupe_router.run.series import flatten, metrics_document
from troupe_router.web.files import PAGE

EVERY = [(kind, name) for kind, metrics in METRICS.items() for name in metrics]
JOB = "declared-metrics-1"
NESTED = {"reward_by_term", "by_policy"}


def measured(part: type[Part], kind: str) -> dict[str, Any]:
    """A different number for every metric of ``part``; for a mapping one below a key."""
    values: dict[str, Any] = {}
    for each in fields(part):
        if each.name not in part.metrics():
            continue
        value: Any = 2.0 + EVERY.index((kind, each.name))
        if part.metrics()[each.name].unit == "flag":
            value = True
        if each.default is None:
            values[each.name] = value
        else:
            values[each.name] = {"key": {"term": value} if each.name in NESTED else value}
    return values


def lines() -> dict[str, dict[str, Any]]:
    """One line of each kind in which everything is measured, written by the router's own code."""
    play = PlayPart(**measured(PlayPart, "train"), generate_s=1.0, is_by_episode=True)
    learned = TrainerPart(step=3, **measured(TrainerPart, "train"), phases={"learn": 2.0})
    return {"train": train_line(3, play, learned, 9.0, eval_s=4.0), "eval": eval_line(3, play)}


def only(kind: str, name: str) -> tuple[dict[str, Any], float]:
    """A line with nothing but one metric, and one number of it."""
    line = {"kind": kind, "step": 3, name: lines()[kind][name]}
    [value, *_] = [v for v in flatten(line).values() if v is not None]
    return line, value


@pytest.mark.parametrize(("kind", "name"), EVERY)
def test_metric_when_measured_then_is_in_the_line(kind: str, name: str) -> None:
    line = lines()[kind]
    assert line[name] not in (None, {})
    part = {"play": PlayPart, "router": None}.get(METRICS[kind][name].source, TrainerPart)
    if kind == "train" and part is not None:
        assert line[name] == measured(part, "train")[name], "another part's number is in its place"


@pytest.mark.parametrize(("kind", "name"), EVERY)
def test_metric_when_in_a_line_then_has_a_prometheus_series(kind: str, name: str) -> None:
    line, _ = only(kind, name)
    job_metrics.begin(JOB, 10, ["p"])
    before = samples()
    try:
        job_metrics.observe_line(JOB, line)
        known = METRICS[kind][name].metric.series.metric
        given = {key: v for key, v in samples().items() if before.get(key) != v}
        taken = [v for (series, _), v in given.items() if series.removesuffix("_sum") == known]
        assert sorted(taken) == sorted(v for v in flatten(line).values() if v is not None)
    finally:
        job_metrics._forget(JOB)  # pyright: ignore[reportPrivateUsage]


def samples() -> Mapping[tuple[str, str], float]:
    return {
        (sample.name, json.dumps(sample.labels, sort_keys=True)): sample.value
        for family in REGISTRY.collect()
        for sample in family.samples
        if sample.labels.get("job_id") == JOB
        and not sample.name.endswith(("_created", "_bucket", "_count"))
        and sample.name not in ("troupe_job_planned_steps", "troupe_job_step")
    }


@pytest.mark.parametrize(("kind", "name"), EVERY)
def test_metric_when_in_a_line_then_is_tracked(kind: str, name: str) -> None:
    line, value = only(kind, name)
    assert value in tracked_values(line).values()


def test_metrics_when_tracked_then_no_two_have_one_name() -> None:
    for line in lines().values():
        numbers = [v for v in flatten(line).values() if v is not None]
        assert len(tracked_values(line)) == len(numbers)


@pytest.mark.parametrize(("kind", "name"), EVERY)
def test_metric_when_in_a_line_then_rest_has_its_curve_and_says_what_it_is(
    kind: str, name: str
) -> None:
    line, value = only(kind, name)
    points = [(kind, 3, flatten(line))]
    asked = metrics_document("j", points, names=(), from_step=0, max_points=10)
    answer = MetricsDocument.model_validate_json(asked.model_dump_json())
    curves = {"train": answer.train, "eval": answer.eval}[kind].series
    assert [value] in curves.values()
    [field] = [each for each in answer.fields if (each.table, each.name) == (kind, name)]
    assert field.description.endswith(".")
    assert {curve.split(".")[0] for curve in curves} == {name}


def test_metrics_when_names_are_asked_for_then_rest_does_not_repeat_the_catalogue() -> None:
    asked = metrics_document("j", [], names=("loss",), from_step=0, max_points=10)
    assert asked.fields == []


def test_curve_when_declared_then_its_panel_is_there_and_no_panel_is_empty() -> None:
    drawn = {
        each.metric.curve.panel
        for metrics in METRICS.values()
        for each in metrics.values()
        if each.metric.curve is not None
    }
    assert drawn == {panel.id for panel in PANELS}


def test_page_when_everything_is_measured_then_draws_or_lists_every_metric() -> None:
    tables = {
        kind: {"steps": [3], "series": {n: [v] for n, v in flatten(line).items()}}
        for kind, line in lines().items()
    }
    shown = said_by_node(f"""
        const {{ panelColumns, otherColumns, grouped }} = await import({str(PANELS_JS)!r});
        const {{ fields, panels }} = {json.dumps(catalogue_document())};
        const tables = {json.dumps(tables)};
        const drawn = grouped(panels).flatMap((group) => group.panels)
          .flatMap((panel) => panelColumns(panel, tables, ["key"]));
        const listed = otherColumns(panels, fields, tables);
        if (listed.some((one) => !one.field)) throw new Error("a listed number is not declared");
        const names = [...drawn, ...listed].map((one) => `${{one.table}}.${{one.name}}`);
        tell(names);
    """)
    wanted = [f"{kind}.{name}" for kind, table in tables.items() for name in table["series"]]
    assert sorted(shown) == sorted(name for name in wanted if "by_policy" not in name)


PANELS_JS = PAGE / "app" / "charts" / "panels.js"


@dataclass(frozen=True, slots=True, kw_only=True)
class SecondPart(Part):
    measured_by: ClassVar[Source] = "router"

    reward_mean: float | None = number("The same name as play's.", "number")


def test_declaration_when_two_parts_have_one_name_then_is_refused() -> None:
    with pytest.raises(ValueError, match=r"SecondPart declares the metric 'reward_mean'.*rename"):
        declared(PlayPart, SecondPart)
    assert declared(EvalPart)["reward_mean"].source == "play"


@pytest.mark.parametrize("name", ["entropy", "tokens_per_s", "value_loss", "step", "phases"])
def test_loss_when_it_gives_a_number_that_is_measured_already_then_both_are_kept(
    name: str,
) -> None:
    assert loss_metric_name(name) == f"loss_{name}"
    assert f"loss_{name}" not in METRICS["train"]


@pytest.mark.parametrize("name", ["kl_rollout", "clip_fraction_low", "mine"])
def test_loss_when_it_gives_a_number_of_its_own_then_that_keeps_its_name(name: str) -> None:
    assert loss_metric_name(name) == name


def test_numbers_that_people_see_first_are_declared() -> None:
    shown = {name for name, *_ in (*progress._SHOWN, *progress._CURVES)}  # pyright: ignore[reportPrivateUsage]
    assert shown <= METRICS["train"].keys()
    head = (PAGE / "app" / "job" / "head.js").read_text(encoding="utf-8")
    for table, kind in (("train", "train"), ("held", "eval")):
        names = set(re.findall(rf'(?:last|first)\({table}, "(\w+)"\)', head))
        assert names and names <= METRICS[kind].keys()
