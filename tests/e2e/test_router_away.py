"""A router that is away for longer than a job's limits: the trainer waits, and the job goes on."""

import os
import signal
import time
from typing import Any

import pytest
from platform_world import Platform, trained_groups, until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]
STEPS = 6
LIMITS = {"step_timeout_s": 40}
AWAY_S = 75.0
"""Longer than a step may take, and than an interruption that counts."""


def test_job_when_its_router_stands_still_beyond_its_limits_then_is_trained_to_its_end(
    platform: Platform, spec: dict[str, Any]
) -> None:
    wanted = {**spec, "name": "router-away", "steps": STEPS, "limits": LIMITS}
    with platform.client() as client:
        job_id = client.submit(wanted).job_id
        until(lambda: client.job(job_id).step >= 1)
        router = platform.pid_of("", "router")
        os.kill(router, signal.SIGSTOP)
        try:
            time.sleep(AWAY_S)
        finally:
            os.kill(router, signal.SIGCONT)
        until(lambda: client.job(job_id).is_over)
        ended = client.job(job_id)
    assert ended.state == "succeeded", ended.reason
    assert [step for step, _ in trained_groups(platform.run_dir(job_id))] == list(range(STEPS))
