"""A job whose agent program fails on a fifth of its tasks: it goes on, and the figure is right."""

import json
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from platform_world import Platform

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(580)]

TEAMS = Path(__file__).parents[1] / "integration" / "programs" / "teams"
TASKS, K, STEPS = 10, 2, 3


def test_job_when_a_fifth_of_its_programs_fail_then_goes_on_and_says_so(
    platform: Platform, spec: dict[str, Any]
) -> None:
    document = {
        **spec,
        "name": "failing",
        "steps": STEPS,
        "tasks_per_step": TASKS,
        "task": {
            "name": "program",
            "params": {
                "program": "shapes:fails_a_fifth",
                "folder": str(TEAMS),
                "judge": {"name": "plan_path", "params": {"size": 4}, "agent": "planner"},
                "seats": {
                    "solver": {"system": "You are the solver"},
                    "verifier": {"system": "You are the verifier"},
                },
                "max_calls": 4,
            },
        },
        "workflow": {"kind": "self_play", "order": ["solver", "verifier"], "max_turns": 4},
        "agents": {"solver": {"policy": "shared"}, "verifier": {"policy": "shared"}},
        "algorithm": {"kind": "grpo", "group_size": K},
        "monitor": {"failed_programs": 0.0},
        "eval": {"num_tasks": 10},
    }
    (platform.folder / "failing.yaml").write_text(yaml.safe_dump(document))
    done = platform.troupe("train", "failing.yaml", "--json", timeout_s=560)
    assert done.returncode == 0, done.stderr
    job_id = json.loads(done.stdout)["job_id"]
    run_dir = platform.run_dir(job_id)
    episodes = _lines(run_dir / "episodes.jsonl")
    for line in _lines(run_dir / "metrics.jsonl"):
        assert line["num_dropped"] == 0
        mine = [e for e in episodes if (e["kind"], e["step"]) == (line["kind"], line["step"])]
        runs = 1 if line["kind"] == "eval" else K
        failed = [e for e in mine if int(e["task_id"].rpartition("/")[2]) % 5 == 3]
        assert len(mine) == TASKS
        assert line["num_program_runs"] == runs * TASKS
        assert line["program_failed"] == len(failed) / TASKS
        assert all(e["program_ends"] == {"program_error": runs} for e in failed)
        assert all(e["program_ends"] == {"answered": runs} for e in mine if e not in failed)
        if line["kind"] == "train":
            assert line["program_failures"]["program_error"] == len(failed) / TASKS
            assert line["groups_trained"] + line["groups_zero_variance"] == 2 * TASKS
        else:
            assert line["program_failed"] == 0.2
    told = _events(platform, job_id)
    evaluated = next(t for t in told if (t["kind"], t["step"]) == ("eval", 0))
    assert evaluated["by_kind"] == {"program_error": 2}
    assert "every fifth task is too much" in evaluated["sentence"]
    assert evaluated["episode_id"] in {e["episode_id"] for e in episodes}
    watched = platform.troupe("watch", job_id)
    assert "program.failing: 2 of 10 agent programs failed" in watched.stdout + watched.stderr
    assert _exported(platform, job_id, "eval_program_failed") == 0.2


def _lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def _events(platform: Platform, job_id: str) -> list[dict[str, Any]]:
    with platform.client() as client:
        return [dict(e.data) for e in client.events(job_id) if e.type == "program.failing"]


def _exported(platform: Platform, job_id: str, name: str) -> float:
    """A learning value of the job, as Prometheus reads it from the router."""
    port = platform.environment["TROUPE_ADMIN_PORT"]
    text = httpx.get(f"http://127.0.0.1:{port}/metrics", timeout=30).text
    labels = f'job_id="{job_id}",name="{name}",policy=""'
    lines = [line for line in text.splitlines() if labels in line]
    assert len(lines) == 1, lines
    return float(lines[0].rpartition(" ")[2])
