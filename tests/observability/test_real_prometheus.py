"""A real Prometheus scrapes a real run: every dashboard and every rule finds its series there.

Slow (it trains a small job), so it runs with ``make test-observability``.
"""

import json
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import redis
import yaml
from platform_world import Platform

pytestmark = [pytest.mark.observability, pytest.mark.timeout(400)]

ROOT = Path(__file__).parents[2]
RULES = ROOT / "deploy/helm/troupe/files/rules/troupe.yaml"
BOARDS = sorted((ROOT / "deploy/helm/troupe/files/dashboards").glob("*.json"))


@pytest.fixture(scope="module")
def prometheus(platform: Platform, tmp_path_factory: Any, free_port: Any) -> Iterator[str]:
    """The base URL of a server that scrapes the platform every second, with the real rules."""
    program = ROOT / ".tools/prometheus"
    found = str(program) if program.exists() else shutil.which("prometheus")
    if found is None:
        pytest.skip("prometheus is not here; scripts/get_prometheus.py fetches it")
    folder = tmp_path_factory.mktemp("prometheus")
    admin = f"127.0.0.1:{platform.environment['TROUPE_ADMIN_PORT']}"
    sd = f"http://{admin}/metrics/targets"
    config = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(RULES)],
        "scrape_configs": [
            {"job_name": "troupe-router", "static_configs": [{"targets": [admin]}]},
            {
                "job_name": "troupe-replicas",
                "http_sd_configs": [{"url": sd, "refresh_interval": "1s"}],
            },
        ],
    }
    (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
    address = f"127.0.0.1:{free_port()}"
    argv = [
        found,
        f"--config.file={folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address={address}",
    ]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(argv, stdout=log, stderr=log)
    try:
        deadline = time.monotonic() + 30
        while not _is_ready(address):
            assert process.poll() is None, (folder / "log").read_text()
            assert time.monotonic() < deadline
            time.sleep(0.1)
        yield f"http://{address}"
    finally:
        process.terminate()
        process.wait(timeout=20)


def _is_ready(address: str) -> bool:
    try:
        return httpx.get(f"http://{address}/-/ready", timeout=2).is_success
    except httpx.HTTPError:
        return False


@pytest.fixture(scope="module")
def scraped(platform: Platform, prometheus: str, spec: dict[str, Any]) -> str:
    """The server after it saw a whole job; its series are there for two more minutes.

    Prometheus takes up new targets every 5 s, so the job must last for several of those.
    """
    # A panel shows the used part of a limit, which the embedded Redis has none of.
    port = int(platform.environment["TROUPE_REDIS_PORT"])
    with platform.client() as client, redis.Redis(port=port) as memory:
        memory.config_set("maxmemory", 1 << 30)
        job = client.submit({**spec, "name": "scraped", "steps": 100, "eval": {"num_tasks": 6}})
        for _ in client.events(job.job_id):
            pass
        assert client.job(job.job_id).state == "succeeded"
    return prometheus


def query(base: str, expression: str) -> list[Any]:
    """Series of ``expression`` at any instant of the run."""
    now = time.time()
    params = {"query": expression, "start": str(now - 300), "end": str(now), "step": "2"}
    answer = httpx.get(f"{base}/api/v1/query_range", params=params, timeout=30).json()
    assert answer["status"] == "success", (expression, answer)
    return answer["data"]["result"]


def expressions() -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    for path in BOARDS:
        for panel in json.loads(path.read_text())["panels"]:
            for target in panel.get("targets", []):
                text = re.sub(r"\$(job|namespace|release)\b", ".*", target["expr"])
                found.append((f"{path.stem}: {panel['title']}", text))
    return found


def test_every_process_when_discovered_then_is_scraped(scraped: str) -> None:
    components = {s["metric"]["component"] for s in query(scraped, 'up{component!=""} == 1')}
    assert components == {"rollout", "env", "trainer"}
    assert query(scraped, 'up{job="troupe-router"} == 1')


@pytest.mark.parametrize(("panel", "expression"), expressions(), ids=lambda v: v[:60])
def test_dashboard_when_a_real_run_was_scraped_then_every_panel_has_series(
    scraped: str, panel: str, expression: str
) -> None:
    assert query(scraped, expression), f"{panel}: {expression}"


def test_every_rule_when_a_healthy_run_was_scraped_then_is_evaluated_and_none_fires(
    scraped: str,
) -> None:
    groups = httpx.get(f"{scraped}/api/v1/rules", timeout=30).json()["data"]["groups"]
    rules = [rule for group in groups for rule in group["rules"]]
    assert len(rules) == RULES.read_text().count("- alert:")
    assert [r["name"] for r in rules if r["health"] != "ok"] == []
    firing = {r["name"] for r in rules if r["state"] == "firing"}
    assert firing <= {"TroupeDiskFilling"}, firing
