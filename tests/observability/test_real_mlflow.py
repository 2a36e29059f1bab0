"""The MLflow tracker against a real MLflow server."""

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from troupe.errors import UnavailableError
from troupe.runtime.tracking.mlflow import MlflowTracker
from troupe.runtime.tracking.tracker import TrackedRun

pytestmark = [pytest.mark.observability, pytest.mark.timeout(180)]

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def server(tmp_path_factory: Any, free_port: Any) -> Iterator[str]:
    program = ROOT / ".venv-mlflow/bin/mlflow"
    if not program.exists():
        pytest.skip("the MLflow server is not here; scripts/setup_mlflow.py installs it")
    folder = tmp_path_factory.mktemp("mlflow")
    port = str(free_port())
    argv = [program, "server", "--host", "127.0.0.1", "--port", port, "--workers", "1"]
    argv += ["--backend-store-uri", f"sqlite:///{folder / 'mlflow.db'}"]
    argv += ["--artifacts-destination", str(folder / "artifacts")]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(argv, stdout=log, stderr=log, cwd=folder)
    try:
        deadline = time.monotonic() + 120
        while not _is_up(port):
            assert process.poll() is None, (folder / "log").read_text()[-2000:]
            assert time.monotonic() < deadline
            time.sleep(0.2)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(timeout=30)


def _is_up(port: str) -> bool:
    try:
        return httpx.get(f"http://127.0.0.1:{port}/health", timeout=2).is_success
    except httpx.HTTPError:
        return False


def run(server: str, folder: Path, *, resumes: bool = False) -> TrackedRun:
    config = {"seed": 7, "policies": {"p": {"model": "m", "train": {"rank": 4}}}, "empty": None}
    return TrackedRun("demo-1", "troupe-test", folder, config, {"tracking_uri": server}, resumes)


def get(server: str, path: str, **params: str) -> Any:
    answer = httpx.get(f"{server}/api/2.0/mlflow/{path}", params=params, timeout=10)
    assert answer.is_success, answer.text
    return answer.json()


def runs(server: str) -> list[Any]:
    found = get(server, "experiments/get-by-name", experiment_name="troupe-test")
    body = {"experiment_ids": [found["experiment"]["experiment_id"]]}
    answer = httpx.post(f"{server}/api/2.0/mlflow/runs/search", json=body, timeout=10)
    return answer.json()["runs"]


def test_run_when_told_and_resumed_then_is_one_run_with_its_whole_curve(
    server: str, tmp_path: Path
) -> None:
    first = MlflowTracker(run(server, tmp_path))
    first.log(1, {"train/loss": 0.5, "reward/planner": 1.0})
    first.close("")
    second = MlflowTracker(run(server, tmp_path, resumes=True))
    second.log(2, {"train/loss": 0.25})
    second.close("succeeded")
    (found,) = runs(server)
    assert found["info"]["status"] == "FINISHED" and found["info"]["run_name"] == "demo-1"
    params = {p["key"]: p["value"] for p in found["data"]["params"]}
    assert params == {"seed": "7", "policies.p.model": "m", "policies.p.train.rank": "4"}
    run_id = found["info"]["run_id"]
    history = get(server, "metrics/get-history", run_id=run_id, metric_key="train/loss")
    assert [(p["step"], p["value"]) for p in history["metrics"]] == [(1, 0.5), (2, 0.25)]


def test_run_when_the_server_refuses_then_says_what_it_answered(
    server: str, tmp_path: Path
) -> None:
    tracker = MlflowTracker(run(server, tmp_path))
    with pytest.raises(UnavailableError, match="MLflow answered 4"):
        tracker.log(1, {"bad\nname": 1.0})
    tracker.close("failed")
