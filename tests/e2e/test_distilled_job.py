"""A tiny student learns from a tiny teacher through the four services, without a reward."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(3600)]

EXAMPLE = Path(__file__).parents[2] / "examples" / "distill_guided_walk.yaml"


def _model(document: dict[str, Any], steps: int, folder: Path) -> str:
    """A base with ``steps`` of warm start for the task of the spec."""
    warm = {"num_careful_steps": steps, "num_careless_steps": 0, "solo_share": 0.0}
    command = [sys.executable, "-m", "troupe_trainer.tiny_model", "--out", str(folder)]
    task = ["--task", document["task"]["name"], "--params", json.dumps(document["task"]["params"])]
    done = subprocess.run(
        [*command, *task, "--warm-start", json.dumps(warm)],
        capture_output=True,
        text=True,
        timeout=1200,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return str(folder)


def test_job_when_it_distils_a_teacher_then_gains_20_points_of_held_out_success(
    platform: Any, tmp_path: Path
) -> None:
    document = yaml.safe_load(EXAMPLE.read_text())
    shared = document["policies"]["shared"]
    shared["model"] = _model(document, 36, tmp_path / "student")
    shared["teacher"] = _model(document, 300, tmp_path / "teacher")
    document |= {"steps": 12, "eval": {"num_tasks": 200, "every": 12}}
    (platform.folder / "spec.yaml").write_text(yaml.safe_dump(document))
    done = platform.troupe("train", "spec.yaml", "--json", timeout_s=1500)
    assert done.returncode == 0, done.stderr
    run_dir = platform.run_dir(json.loads(done.stdout)["job_id"])
    lines = [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]
    success = [line["success"] for line in lines if line["kind"] == "eval"]
    assert success[-1] - success[0] >= 0.2, success
    train = [line for line in lines if line["kind"] == "train"]
    assert train[-1]["kl_teacher"] < 0.75 * train[0]["kl_teacher"]
    assert not any(line["is_flat"] for line in train)
    assert all(line["parity_ratio"] < 0.005 for line in train)
