#!/usr/bin/env python3
"""Writes the Grafana dashboards of deploy/observability/boards/ as files that Grafana provisions.

    python scripts/gen_dashboards.py deploy/helm/troupe/files/dashboards

`make generate` runs it and `make check` finds drift. The chart and compose provision the same
files.
"""

import json
import re
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
PLATFORM = ("namespace", "release")
"""Labels that tell platforms behind one Prometheus apart; absent where there is only one."""
SERIES = re.compile(r"\b(troupe_\w+)(?:\{([^}]*)\})?")


def build(board: dict[str, Any]) -> Dashboard:
    """The dashboard of ``board``: variables of data source, platform and job; rows of panels."""
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
    # ".*" takes in series without the label too.
    for label in PLATFORM:
        builder = builder.with_variable(picker(label, "troupe_service_is_serving", label, ".*"))
    if board["of_job"]:
        series = of_platform("troupe_job_planned_steps")
        builder = builder.with_variable(picker("job", series, "job_id", ".+"))
    for row in board["rows"]:
        builder = builder.with_row(dashboard.Row(row["title"]))
        for panel in row["panels"]:
            builder = builder.with_panel(build_panel(panel))
    return builder.build()


def picker(name: str, series: str, label: str, everything: str) -> dashboard.QueryVariable:
    """A variable of the values of a label, all of them at first."""
    return (
        dashboard.QueryVariable(name)
        .label(name.capitalize())
        .datasource(SOURCE)
        .query(f"label_values({series}, {label})")
        .include_all(True)
        .multi(True)
        .all_value(everything)
        .current(VariableOption(text="All", value="$__all"))
        .refresh(VariableRefresh.ON_TIME_RANGE_CHANGED)
    )


def of_platform(expression: str) -> str:
    """``expression`` over the chosen platforms' series, with no two platforms' in one group."""
    chosen = ",".join(f'{label}=~"${label}"' for label in PLATFORM)
    expression = SERIES.sub(
        lambda found: f"{found[1]}{{{','.join(filter(None, (chosen, found[2])))}}}", expression
    )
    return expression.replace(" by (", f" by ({', '.join(PLATFORM)}, ")


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
        legend = " ".join([query["legend"], *(f"{{{{{label}}}}}" for label in PLATFORM)])
        target = prometheus.Dataquery().expr(of_platform(query["expr"])).legend_format(legend)
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
