"""kill -9 of any service in mid-step: the job ends, and every group is trained exactly once."""

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import Platform

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

KILLED_STEP = 1


def trained_groups(run_dir: Path, job_id: str) -> list[tuple[int, list[str]]]:
    """(step, group ids without the job's name) of every trained step, as the trainer recorded."""
    lines = [json.loads(line) for line in (run_dir / "groups.jsonl").read_text().splitlines()]
    return [
        (line["step"], [group.removeprefix(f"{job_id}/") for group in line["group_ids"]])
        for line in lines
    ]


def adapter_bytes(run_dir: Path) -> bytes:
    return (run_dir / "policies" / "shared" / "adapter" / "adapter_model.safetensors").read_bytes()


def run_job(
    platform: Platform, spec: dict[str, Any], on_event: Callable[[str, str, dict[str, Any]], None]
) -> str:
    """Submit, hand every event to ``on_event``, and return the id of the succeeded job."""
    with platform.client() as client:
        job = client.submit(spec)
        for event in client.events(job.job_id):
            on_event(job.job_id, event.type, event.data)
        ended = client.job(job.job_id)
    assert ended.state == "succeeded", ended
    return job.job_id


@pytest.fixture(scope="module")
def uninterrupted(platform: Platform, spec: dict[str, Any]) -> Path:
    """The run folder of the same job, left alone."""
    job_id = run_job(platform, spec, lambda *_: None)
    return platform.run_dir(job_id)


def test_run_folder_when_job_succeeded_then_holds_all_that_was_promised(uninterrupted: Path):
    summary = json.loads((uninterrupted / "summary.json").read_text())
    assert summary["state"] == "succeeded"
    assert (summary["task"], summary["seed"], summary["num_eval"]) == ("plan_path", 5, 12)
    assert 0 <= summary["base_success"] <= 1
    assert 0 <= summary["final_success"] <= 1
    assert summary["groups_trained"] > 0
    assert 0 < summary["busy_ratio"] <= 1
    metrics = [json.loads(x) for x in (uninterrupted / "metrics.jsonl").read_text().splitlines()]
    assert [m["step"] for m in metrics if m["kind"] == "train"] == [0, 1, 2]
    assert [m["step"] for m in metrics if m["kind"] == "eval"] == [0, 3]
    assert all(m["groups_trained"] > 0 for m in metrics if m["kind"] == "train")
    assert all(abs(m["ratio_mean"] - 1) < 1e-4 for m in metrics if m["kind"] == "train")
    episodes = (uninterrupted / "episodes.jsonl").read_text().splitlines()
    assert len(episodes) == 12 + 3 * 6 + 12
    assert (uninterrupted / "curve.png").read_bytes().startswith(b"\x89PNG")
    for name in ("adapter/adapter_config.json", "merged/model.safetensors"):
        assert (uninterrupted / "policies" / "shared" / name).is_file()


def test_groups_when_trained_then_both_agents_have_own_signal_and_one_prompt(uninterrupted: Path):
    episodes = [json.loads(x) for x in (uninterrupted / "episodes.jsonl").read_text().splitlines()]
    groups = [g for e in episodes if e["kind"] == "train" for g in e["groups"]]
    for agent in ("tool", "planner"):
        own = [g for g in groups if g["agent"] == agent]
        spread = [len({c["reward"] for c in g["candidates"]}) > 1 for g in own]
        assert all(len(g["candidates"]) == 4 for g in own)
        assert any(spread), f"no group of {agent} has two different rewards"


@pytest.mark.parametrize("component", ["trainer-0", "rollout-shared-0", "env-0", "router", "redis"])
def test_job_when_a_process_is_killed_in_mid_step_then_ends_as_if_nothing_happened(
    platform: Platform, spec: dict[str, Any], uninterrupted: Path, component: str
):
    killed: list[int] = []

    def kill_once(job_id: str, kind: str, data: dict[str, Any]) -> None:
        if killed or kind != "round.opened" or data["round_id"] != f"train-{KILLED_STEP:05d}":
            return
        pid = platform.pid_of(job_id, component)
        os.kill(pid, signal.SIGKILL)
        killed.append(pid)

    job_id = run_job(platform, spec, kill_once)
    assert killed, "the step was never opened, so nothing was tested"
    run_dir = platform.run_dir(job_id)
    baseline = trained_groups(uninterrupted, uninterrupted.name)
    assert trained_groups(run_dir, job_id) == baseline
    assert [step for step, _ in baseline] == [0, 1, 2]
    assert adapter_bytes(run_dir) == adapter_bytes(uninterrupted)
