"""A trainer of several pods is one replica: it runs when all of its pods do."""

from typing import Any

import pytest

from troupe_router.cluster import names
from troupe_router.cluster.workload_status import WorkloadStatus
from troupe_router.cluster.workloads import Workload

WORKLOAD = Workload("trainer", "trainer", ("trainer-0",), {}, (), False, {})
JOB = {
    "kind": "Job",
    "metadata": {"name": "t-demo-1-trainer", "uid": "job"},
    "spec": {"completionMode": "Indexed", "completions": 2},
}


def pod(index: int, *, made: str = "1", waits_for: str = "", code: int = 0) -> Any:
    status: dict[str, Any] = {"name": "trainer", "ready": not waits_for, "restartCount": 0}
    status["state"] = {"running": {}}
    phase = "Running"
    if waits_for:
        status["state"], phase = {"waiting": {"reason": waits_for, "message": "why"}}, "Pending"
    if code:
        ended = {"exitCode": code, "message": "lost a rank"}
        status["state"], phase = {"terminated": ended}, "Failed"
        status["ready"] = False
    return {
        "metadata": {
            "name": f"t-demo-1-trainer-{index}-{made}",
            "uid": f"{index}-{made}",
            "creationTimestamp": f"2026-01-01T00:00:0{made}Z",
            "ownerReferences": [{"uid": "job"}],
            "labels": {names.COMPLETION_INDEX: str(index)},
        },
        "spec": {"containers": [{"name": "trainer"}]},
        "status": {
            "phase": phase,
            "containerStatuses": [status],
            "conditions": [{"type": "Ready", "status": "True" if status["ready"] else "False"}],
        },
    }


def placed(of: Any) -> Any:
    """A pod with network and volumes."""
    of["status"]["conditions"].append({"type": "PodReadyToStartContainers", "status": "True"})
    return of


@pytest.mark.parametrize(
    ("pods", "state", "condition", "uid"),
    [
        ([pod(0), pod(1)], "running", "", "0-1"),
        ([pod(0), pod(1, waits_for="ImagePullBackOff")], "waiting", "ImagePullFailed", "1-1"),
        ([pod(0), pod(1, waits_for="ContainerCreating")], "waiting", "Starting", "1-1"),
        ([pod(0), placed(pod(1, waits_for="ContainerCreating"))], "waiting", "ImagePulling", "1-1"),
        ([pod(0)], "waiting", "Starting", ""),
        ([], "waiting", "Starting", ""),
        # The dead one was replaced, so it no longer counts.
        ([pod(0), pod(1, code=1), pod(1, made="2")], "running", "", "0-1"),
    ],
    ids=["all run", "no image", "one mounts", "one pulls", "one not made", "none", "one replaced"],
)
def test_status_when_a_job_is_indexed_then_its_halting_pod_speaks_for_it(
    pods: list[Any], state: str, condition: str, uid: str
) -> None:
    [observed] = WorkloadStatus(WORKLOAD, JOB, pods).statuses({})
    assert (observed.status.state, observed.status.condition) == (state, condition)
    assert observed.pod_uid == uid


@pytest.mark.parametrize("completion_mode", ["Indexed", "NonIndexed"])
def test_status_when_a_pod_was_misconfigured_then_its_successor_hides_nothing(
    completion_mode: str,
) -> None:
    """A server without podFailurePolicy makes another pod at once, which runs for a moment."""
    job = {**JOB, "spec": {"completionMode": completion_mode, "completions": 1}}
    pods = [pod(0, code=3), pod(0, made="2")]
    [observed] = WorkloadStatus(WORKLOAD, job, pods).statuses({})
    status = observed.status
    assert (status.state, status.condition, status.exit_code) == ("failed", "Misconfigured", 3)
    assert status.detail == "lost a rank"
