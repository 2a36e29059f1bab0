"""Redis loses everything, under a platform that runs or between two: no job is lost."""

import os
import shutil
import signal
from typing import Any

import httpx
import pytest
from platform_world import Platform, trained_bytes, trained_groups, until

from troupe.runtime.launch.processes import find_leader

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]
STEPS = 4


def answers(platform: Platform, job_id: str) -> dict[str, bytes]:
    """Every REST answer of a finished job, by path, and its own lines of the lists."""
    job = f"/v1/jobs/{job_id}"
    paths = [
        job,
        *(f"{job}/{part}" for part in ("spec", "progress", "metrics", "steps", "steps/0")),
        *(f"{job}/{part}" for part in ("episodes", "checkpoints", "logs", "logs/trainer-0")),
        f"{job}/events?limit=1000",
        f"{job}/episodes?kind=eval&failure=any&order=reward_desc",
        f"{job}/checkpoints/final/shared?format=peft",
        f"{job}/checkpoints/final/shared?format=merged",
        "/v1/jobs?state=succeeded",
    ]
    with httpx.Client(base_url=f"http://127.0.0.1:{platform.rest_port}", timeout=60) as http:
        found = {path: http.get(path) for path in paths}
        [episode, *_] = found[f"{job}/episodes"].json()["episodes"]
        found["episode"] = http.get(f"{job}/episodes/{episode['id']}")
    assert {path: a.text for path, a in found.items() if a.status_code != 200} == {}
    return {path: answer.content for path, answer in found.items()}


def lose_redis(platform: Platform, *, is_up: bool) -> None:
    """Take Valkey's data away; with ``is_up`` under a router that goes on."""
    data = platform.folder / "runs" / ".troupe" / "redis"
    if is_up:
        os.kill(platform.pid_of("", "redis"), signal.SIGSTOP)
        shutil.rmtree(data)
        os.kill(platform.pid_of("", "redis"), signal.SIGKILL)
        return
    assert platform.troupe("down").returncode == 0
    shutil.rmtree(data)
    assert platform.troupe("up").returncode == 0


@pytest.mark.parametrize("is_up", [True, False])
def test_redis_when_its_data_is_gone_then_ended_jobs_answer_as_before_and_a_running_one_goes_on(
    platform: Platform, spec: dict[str, Any], is_up: bool
) -> None:
    whole_spec = {**spec, "name": f"whole-{'up' if is_up else 'down'}", "steps": STEPS}
    whole_spec["eval"] = {"num_tasks": 4}
    with platform.client() as client:
        whole = client.submit(whole_spec).job_id
        until(lambda: client.job(whole).is_over)
        assert client.job(whole).state == "succeeded", client.job(whole).reason
        before = answers(platform, whole)
        cut = client.submit({**whole_spec, "name": f"cut-{'up' if is_up else 'down'}"})
        until(lambda: client.job(cut.job_id).step >= 2)

    lose_redis(platform, is_up=is_up)

    with platform.client() as client:
        folders = until(lambda: known(client.jobs(), whole, cut.job_id))
        assert folders[cut.job_id].created_at == cut.created_at
        rested = until(lambda: rests(client.job(cut.job_id)))
        assert "while it was running" in rested.reason
        assert find_leader("TROUPE_TRAINER_JOB_ID", cut.job_id) is None, "its trainer still runs"
        assert answers(platform, whole) == before
        refused = platform.troupe("resume", whole)
        assert (refused.returncode, "succeeded" in refused.stderr) == (2, True), refused.stderr
        client.resume(cut.job_id)
        until(lambda: client.job(cut.job_id).is_over)
        ended = client.job(cut.job_id)
    assert (ended.state, ended.life) == ("succeeded", 2), ended.reason
    run_dir, reference = platform.run_dir(cut.job_id), platform.run_dir(whole)
    assert trained_groups(run_dir) == trained_groups(reference)
    assert trained_bytes(run_dir) == trained_bytes(reference)


def known(jobs: list[Any], *job_ids: str) -> dict[str, Any] | None:
    listed = {job.job_id: job for job in jobs}
    return listed if all(job_id in listed for job_id in job_ids) else None


def rests(job: Any) -> Any:
    assert not job.is_over, job.reason
    return job if job.state == "paused" else None
