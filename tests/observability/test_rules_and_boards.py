"""Alert rules and dashboards: real promtool, real dashboard schema, real metric names."""

import importlib.util
import json
import re
import shutil
import subprocess
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import Dashboard
from prometheus_client import REGISTRY
from prometheus_client.metrics import MetricWrapperBase

from troupe.runtime.telemetry import metrics

ROOT = Path(__file__).parents[2]
RULES = ROOT / "deploy/helm/troupe/files/rules/troupe.yaml"
RULE_TESTS = ROOT / "deploy/observability/tests/alerts.yaml"
BOARDS = sorted((ROOT / "deploy/helm/troupe/files/dashboards").glob("*.json"))
METRIC = re.compile(r"\btroupe_[a-z0-9_]+")
OF_EVERY_ROUTER = ("troupe_router_jobs", "troupe_router_replicas", "troupe_router_policy_replicas")
"""Gauges of which every router shows the same numbers: to add them up counts once a router."""


@pytest.fixture(scope="module")
def promtool() -> str:
    found = ROOT / ".tools/promtool"
    if found.exists():
        return str(found)
    path = shutil.which("promtool")
    if path is None:
        pytest.skip("promtool is not here; scripts/get_prometheus.py fetches it")
    return path


def run(*argv: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(a) for a in argv], capture_output=True, text=True, timeout=60, check=False
    )


def alerts() -> list[dict[str, Any]]:
    document = yaml.safe_load(RULES.read_text())
    return [rule for group in document["groups"] for rule in group["rules"]]


def panels(path: Path) -> list[dict[str, Any]]:
    return [p for p in json.loads(path.read_text())["panels"] if p["type"] != "row"]


def expressions(path: Path) -> list[str]:
    return [target["expr"] for panel in panels(path) for target in panel["targets"]]


def declared() -> set[str]:
    """Series names of every metric that Troupe declares."""
    assert metrics.JOB_STEP
    names: set[str] = set()
    for family in REGISTRY.collect():
        names.add(family.name)
        if family.type == "counter":
            names.add(f"{family.name}_total")
        if family.type == "histogram":
            names |= {f"{family.name}_{part}" for part in ("bucket", "sum", "count")}
    return names


def of_jobs() -> set[str]:
    """Series names of the metrics that have a job."""
    declared = [m for m in vars(metrics).values() if isinstance(m, MetricWrapperBase)]
    of_job = [m for m in declared if "job_id" in m._labelnames]  # pyright: ignore[reportPrivateUsage]
    ends = ("", "_total", "_bucket", "_sum", "_count")
    return {m._name + end for m in of_job for end in ends}  # pyright: ignore[reportPrivateUsage]


def test_rules_when_checked_by_promtool_then_are_valid(promtool: str) -> None:
    done = run(promtool, "check", "rules", RULES)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_alert_when_its_symptom_comes_and_goes_then_fires_and_resolves(promtool: str) -> None:
    done = run(promtool, "test", "rules", RULE_TESTS)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_alert_when_looked_up_in_the_rule_tests_then_is_seen_firing_and_resolved() -> None:
    fires: dict[str, list[tuple[int, bool]]] = {}
    for test in yaml.safe_load(RULE_TESTS.read_text())["tests"]:
        for case in test["alert_rule_test"]:
            at = int(case["eval_time"].removesuffix("m"))
            fires.setdefault(case["alertname"], []).append((at, bool(case.get("exp_alerts"))))
    assert set(fires) == {alert["alert"] for alert in alerts()}
    for name, cases in fires.items():
        assert [fired for _, fired in sorted(cases)][-2:] == [True, False], name


def test_rule_tests_when_a_threshold_is_wrong_then_fail(promtool: str, tmp_path: Path) -> None:
    broken = tmp_path / "rules.yaml"
    broken.write_text(RULES.read_text().replace("lag) > 0", "lag) > 5"))
    tests = RULE_TESTS.read_text().replace("../../helm/troupe/files/rules/troupe.yaml", str(broken))
    (tmp_path / "tests.yaml").write_text(tests)
    assert run(promtool, "test", "rules", tmp_path / "tests.yaml").returncode != 0


def test_every_alert_when_read_then_has_severity_summary_and_a_runbook_that_exists() -> None:
    book = (ROOT / "docs/operations/alerts.md").read_text()
    for alert in alerts():
        assert alert["labels"]["severity"] in ("warning", "critical")
        path, _, anchor = alert["annotations"]["runbook_url"].partition("#")
        assert path == "docs/operations/alerts.md" and anchor == alert["alert"].lower()
        assert f"## {alert['alert']}\n" in book, alert["alert"]


@pytest.mark.parametrize("path", BOARDS, ids=lambda p: p.stem)
def test_dashboard_when_round_tripped_through_the_sdk_then_nothing_is_lost(path: Path) -> None:
    document = json.loads(path.read_text())
    again = json.loads(JSONEncoder().encode(Dashboard.from_json(document)))
    assert again == document


@pytest.mark.parametrize("path", BOARDS, ids=lambda p: p.stem)
def test_dashboard_when_laid_out_then_no_panels_overlap_and_ids_differ(path: Path) -> None:
    everything = json.loads(path.read_text())["panels"]
    taken: set[tuple[int, int]] = set()
    for panel in everything:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        taken |= cells
    assert len({p["title"] for p in panels(path)}) == len(panels(path))


@pytest.mark.parametrize("path", [RULES, *BOARDS], ids=lambda p: p.stem)
def test_expression_when_it_names_a_metric_then_troupe_declares_it(path: Path) -> None:
    found = expressions(path) if path.suffix == ".json" else [a["expr"] for a in alerts()]
    names = {name for text in found for name in METRIC.findall(text)}
    assert names and names <= declared(), sorted(names - declared())


def test_expression_when_every_router_shows_its_gauge_then_routers_are_not_added_up() -> None:
    texts = [*(a["expr"] for a in alerts()), *(e for path in BOARDS for e in expressions(path))]
    shared = [text for text in texts if set(METRIC.findall(text)) & set(OF_EVERY_ROUTER)]
    assert shared and [text for text in shared if not text.startswith("max by (")] == []


def test_expression_when_platforms_share_a_prometheus_then_none_groups_or_matches_two() -> None:
    """Job ids repeat from platform to platform."""
    texts = [*(a["expr"] for a in alerts()), *(e for path in BOARDS for e in expressions(path))]
    groups = [group for text in texts for group in re.findall(r"\b(?:by|on) \(([^)]+)\)", text)]
    assert groups and [g for g in groups if not g.startswith("namespace, release, ")] == []


@pytest.mark.parametrize("path", BOARDS, ids=lambda p: p.stem)
def test_dashboard_when_a_platform_is_picked_then_each_series_is_of_it(path: Path) -> None:
    of_picked = r'(troupe_[a-z0-9_]+)\{namespace=~"\$namespace",release=~"\$release"'
    for text in expressions(path):
        assert re.findall(of_picked, text) == METRIC.findall(text), text
    # Series without the labels are among all.
    assert [v["allValue"] for v in pickers(path, "namespace", "release")] == [".*", ".*"]


def pickers(path: Path, *names: str) -> list[dict[str, Any]]:
    """The board's variables of these names, those that it has."""
    return [v for v in json.loads(path.read_text())["templating"]["list"] if v["name"] in names]


def pick_all(expression: str) -> str:
    """``expression`` with the variables at All."""
    return re.sub(r"\$(job|namespace|release)\b", ".*", expression)


def test_dashboard_when_it_picks_jobs_then_they_are_listed_again_with_each_time_range() -> None:
    found = [variable for path in BOARDS for variable in pickers(path, "job")]
    assert found and [variable["refresh"] for variable in found] == [2] * len(found)


@pytest.mark.parametrize(
    "path", [path for path in BOARDS if pickers(path, "job")], ids=lambda p: p.stem
)
def test_dashboard_when_it_picks_jobs_then_each_series_of_a_job_is_of_those(path: Path) -> None:
    for text in expressions(path):
        picked = re.findall(r'(troupe_[a-z0-9_]+)\{[^}]*job_id=~"\$job"', text)
        left = [name for name in METRIC.findall(text) if name in of_jobs()]
        assert sorted(picked) == sorted(left), text


@pytest.mark.parametrize("path", BOARDS, ids=lambda p: p.stem)
def test_dashboard_expressions_when_checked_by_promtool_then_are_promql(
    path: Path, promtool: str, tmp_path: Path
) -> None:
    rules = [{"record": f"check:{i}", "expr": text} for i, text in enumerate(expressions(path))]
    file = tmp_path / "rules.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "check", "rules": rules}]}))
    done = run(promtool, "check", "rules", file)
    assert done.returncode == 0, done.stdout + done.stderr


def test_cost_when_rounds_are_played_ahead_then_shows_the_pace_and_not_a_steps_own_time(
    promtool: str, tmp_path: Path
) -> None:
    """A step ends each 20 s, and each takes 40 s from its opening."""
    values = {"step": "1+1x90", "step_seconds_count": "1+1x90", "step_seconds_sum": "40+40x90"}
    values["planned_steps"] = "100x90"
    series = [{"series": f'troupe_job_{k}{{job_id="a"}}', "values": v} for k, v in values.items()]
    board = next(path for path in BOARDS if path.stem == "troupe-cost")
    shown = {panel["title"]: panel["targets"][0]["expr"] for panel in panels(board)}
    at_20_min = {"Seconds per step": 20.0, "Steps that remain, hours": (100 - 61) * 20 / 3600}
    checks = [
        {
            "expr": f"round({pick_all(shown[title])}, 0.001)",
            "eval_time": "20m",
            "exp_samples": [{"labels": '{job_id="a"}', "value": round(value, 3)}],
        }
        for title, value in at_20_min.items()
    ]
    test = {"interval": "20s", "input_series": series, "promql_expr_test": checks}
    file = tmp_path / "tests.yaml"
    file.write_text(yaml.safe_dump({"tests": [test]}))
    done = run(promtool, "test", "rules", file)
    assert done.returncode == 0, done.stdout + done.stderr


def test_dashboards_when_generated_again_then_the_files_are_the_same(tmp_path: Path) -> None:
    generator(ROOT / "scripts/gen_dashboards.py").write(tmp_path)
    made = {p.name: p.read_text() for p in tmp_path.glob("*.json")}
    assert made == {p.name: p.read_text() for p in BOARDS}


def generator(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("gen_dashboards", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
