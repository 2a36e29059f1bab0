#!/usr/bin/env python3
"""Writes the Grafana dashboards of deploy/observability/boards/ as files that Grafana provisions.

    python scripts/gen_dashboards.py deploy/helm/troupe/files/dashboards

`make generate` runs it and `make check` finds drift. The chart and compose provision the same
files.
"""

import json
import sys
from pathlib import Path
from typing import Any

import yaml
from grafana_foundation_sdk.builders import common, dashboard, prometheus, stat, timeseries
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.common import (
    GraphDrawStyle,
    GraphGradientMode,
    LegendDisplayMode,
    LegendPlacement,
    StackingMode,
    TooltipDisplayMode,
    VisibilityMode,
)
from grafana_foundation_sdk.models.dashboard import (
    Dashboard,
    DashboardCursorSync,
    DataSourceRef,
    VariableOption,
    VariableRefresh,
)

BOARDS = Path(__file__).parents[1] / "deploy/observability/boards"
SOURCE = DataSourceRef(type_val="prometheus", uid="${datasource}")
HEIGHT, SPAN = 8, 8
FROM_ZERO = ("percentunit", "s", "reqps")
"""Units whose axis begins at zero."""


def build(board: dict[str, Any]) -> Dashboard:
    """The dashboard of ``board``: a data-source variable, a job variable, rows of panels."""
    source = dashboard.DatasourceVariable("datasource").label("Data source").type("prometheus")
    builder = (
        dashboard.Dashboard(board["title"])
        .uid(board["uid"])
        .description(board["about"])
        .tags(["troupe"])
        .readonly()
        .refresh("10s")
        .time("now-1h", "now")
        .tooltip(DashboardCursorSync.CROSSHAIR)
        .with_variable(source)
    )
    if board["of_job"]:
        builder = builder.with_variable(
            dashboard.QueryVariable("job")
            .label("Job")
            .datasource(SOURCE)
            .query("label_values(troupe_job_planned_steps, job_id)")
            .include_all(True)
            .multi(True)
            .all_value(".+")
            .current(VariableOption(text="All", value="$__all"))
            .refresh(VariableRefresh.ON_TIME_RANGE_CHANGED)
        )
    for row in board["rows"]:
        builder = builder.with_row(dashboard.Row(row["title"]))
        for panel in row["panels"]:
            builder = builder.with_panel(build_panel(panel))
    return builder.build()


def build_panel(panel: dict[str, Any]) -> timeseries.Panel | stat.Panel:
    """A panel over its queries; ``single`` shows the last value instead of lines."""
    built = stat.Panel() if panel.get("single") else timeseries.Panel()
    built = built.title(panel["title"]).description(panel["about"]).datasource(SOURCE)
    unit = panel.get("unit", "short")
    built = built.unit(unit).height(HEIGHT).span(panel.get("span", SPAN))
    if unit in FROM_ZERO:
        built = built.min(0)
    if "maximum" in panel:
        built = built.max(panel["maximum"])
    for index, query in enumerate(panel["queries"]):
        target = prometheus.Dataquery().expr(query["expr"]).legend_format(query["legend"])
        built = built.with_target(target.ref_id(chr(ord("A") + index)))
    if isinstance(built, timeseries.Panel):
        built = drawn(built, is_stacked=panel.get("stacked", False))
    return built


def drawn(panel: timeseries.Panel, *, is_stacked: bool) -> timeseries.Panel:
    """Calm lines: thin, over gaps, with a table of last values below."""
    legend = (
        common.VizLegendOptions()
        .display_mode(LegendDisplayMode.TABLE)
        .placement(LegendPlacement.BOTTOM)
        .calcs(["lastNotNull"])
        .show_legend(True)
    )
    panel = (
        panel.draw_style(GraphDrawStyle.LINE)
        .line_width(1.5)
        .fill_opacity(30 if is_stacked else 6)
        .gradient_mode(GraphGradientMode.OPACITY)
        .show_points(VisibilityMode.AUTO)
        .span_nulls(True)
        .legend(legend)
        .tooltip(common.VizTooltipOptions().mode(TooltipDisplayMode.MULTI))
    )
    if is_stacked:
        panel = panel.stacking(common.StackingConfig().mode(StackingMode.NORMAL).group("A"))
    return panel


def write(folder: Path) -> None:
    """Write every dashboard into ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    for source in sorted(BOARDS.glob("*.yaml")):
        board = yaml.safe_load(source.read_text(encoding="utf-8"))
        document = json.loads(JSONEncoder(sort_keys=True, indent=2).encode(build(board)))
        path = folder / f"{board['uid']}.json"
        path.write_text(json.dumps(document, indent=2, sort_keys=True) + "\n", encoding="utf-8")


if __name__ == "__main__":
    write(Path(sys.argv[1]))
