"""``max_staleness``: playing and learning overlap, within the bound, and it learns."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]


def _lines(run_dir: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("in_flight", [False, True])
def test_job_when_asynchronous_then_overlaps_within_the_bound_and_learns(
    platform: Any, spec: dict[str, Any], in_flight: bool
) -> None:
    algorithm = {"kind": "at_grpo", "group_size": 8, "loss": {"importance": {}}}
    document = {
        **spec,
        "name": f"overlap-{'in-flight' if in_flight else 'whole'}",
        "updates_in_flight": in_flight,
        "steps": 10,
        "tasks_per_step": 8,
        "max_staleness": 1,
        "algorithm": algorithm,
        "eval": {"num_tasks": 8, "every": 5},
    }
    (platform.folder / "spec.yaml").write_text(yaml.safe_dump(document))
    done = platform.troupe("train", "spec.yaml", "--json")
    assert done.returncode == 0, done.stderr
    run_dir = platform.run_dir(json.loads(done.stdout)["job_id"])
    lines = _lines(run_dir)
    train = [line for line in lines if line["kind"] == "train"]
    assert [line["step"] for line in train] == list(range(10))
    assert [line["step"] for line in lines if line["kind"] == "eval"] == [0, 5, 10]
    # A step after an evaluation begins on-policy; the others are played ahead of the learning.
    fresh = [line for line in train if line["staleness"] == 0]
    stale = [line for line in train if line["staleness"] == 1]
    assert {0, 5} <= {line["step"] for line in fresh}
    assert len(stale) >= 5
    assert len(fresh) + len(stale) == 10
    assert all(line["groups_dropped"] == {} for line in train)
    assert all(line["overlap_s"] > 0.0 for line in stale)
    assert all(line["importance_active"] > 0.0 for line in stale if line["trained_tokens"])
    assert all(line["importance_active"] == 0.0 for line in train if line["step"] in (0, 5))
    assert all(line["grad_norm"] > 0.0 for line in train if line["trained_tokens"])
