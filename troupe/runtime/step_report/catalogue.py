"""All declared metrics by the kind of line and by name, for the code that shows them."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from troupe.runtime.step_report.metric import Metric, Part, Source
from troupe.runtime.step_report.panels import PANELS, Panel
from troupe.runtime.step_report.play import EvalPart, PlayPart, StepPart
from troupe.runtime.step_report.reductions import BY_TOKENS
from troupe.runtime.step_report.trainer import TrainerPart

Table = Literal["train", "eval"]
"""The ``kind`` of a line of metrics.jsonl."""


@dataclass(frozen=True, slots=True)
class Declared:
    """A metric with its name and its source."""

    name: str
    source: Source
    metric: Metric


def declared(*parts: type[Part]) -> dict[str, Declared]:
    """The metrics of ``parts`` that share a line, by name.

    Raises:
        ValueError: two declare one name, so that one would overwrite the other.
    """
    metrics: dict[str, Declared] = {}
    for part in parts:
        for name, metric in part.metrics().items():
            if name in metrics or name in ("kind", "step"):
                raise ValueError(
                    f"{part.__name__} declares the metric {name!r}, which the line has already: "
                    "one would overwrite the other, so rename it"
                )
            metrics[name] = Declared(name, metric.source or part.measured_by, metric)
    return metrics


METRICS: Mapping[str, Mapping[str, Declared]] = {
    "train": declared(PlayPart, TrainerPart, StepPart),
    "eval": declared(EvalPart),
}
"""By the line's kind, then by name."""


def metric_of(kind: str, name: str) -> Metric:
    """The metric ``name`` of a line; a plug-in's loss may report an undeclared one."""
    declaration = METRICS[kind].get(name)
    return declaration.metric if declaration else _UNDECLARED


_UNDECLARED = Metric("Mean over tokens, of a plug-in's loss.", "number", BY_TOKENS)


def loss_metric_name(name: str) -> str:
    """``name`` of a number that a loss reports; prefixed where it would overwrite a metric."""
    declaration = METRICS["train"].get(name)
    is_free = declaration is None and name not in ("kind", "step")
    return name if is_free or (declaration and declaration.source == "loss") else f"loss_{name}"


def catalogue_document() -> dict[str, Any]:
    """The metrics as REST shows them: ``fields``, and ``panels`` with their curves."""
    fields = [
        {
            "table": table,
            "name": declaration.name,
            "source": declaration.source,
            "unit": declaration.metric.unit,
            "description": declaration.metric.description,
            "over_policies": declaration.metric.over.words,
        }
        for table, metrics in METRICS.items()
        for declaration in metrics.values()
    ]
    return {"fields": fields, "panels": [_panel_document(panel) for panel in PANELS]}


def _panel_document(panel: Panel) -> dict[str, Any]:
    curves = [
        (table, declaration.name, declaration.metric.unit, curve)
        for table, metrics in METRICS.items()
        for declaration in metrics.values()
        if (curve := declaration.metric.curve) is not None and curve.panel == panel.id
    ]
    units = {unit for _, _, unit, _ in curves}
    return {
        **asdict(panel),
        "unit": units.pop() if len(units) == 1 else "number",
        "curves": [
            {"table": table, "name": name, **asdict(curve)} for table, name, _, curve in curves
        ],
    }
