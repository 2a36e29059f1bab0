"""A pod of several containers is as the first that does not run."""

from typing import Any

import pytest

from troupe_router.cluster.pod_status import status_of

RUNS: dict[str, Any] = {"running": {}}
DONE: dict[str, Any] = {"terminated": {"exitCode": 0}}
STARTS: dict[str, Any] = {"waiting": {"reason": "PodInitializing"}}
NO_IMAGE: dict[str, Any] = {
    "waiting": {"reason": "ImagePullBackOff", "message": "ghcr.io/acme/team:1"}
}
KILLED: dict[str, Any] = {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}


def _read(init: dict[str, Any], env: dict[str, Any], program: dict[str, Any]) -> tuple[str, str]:
    def named(name: str, state: dict[str, Any]) -> dict[str, Any]:
        return {"name": name, "state": state, "restartCount": 0}

    pod = {
        "metadata": {"name": "t-job-env-0"},
        "status": {
            "phase": "Running" if "running" in env else "Pending",
            "initContainerStatuses": [named("program-host", init)],
            "containerStatuses": [named("env", env), named("program", program)],
        },
    }
    status = status_of(pod)
    return status.state, status.condition


@pytest.mark.parametrize(
    ("states", "state", "condition"),
    [
        ((DONE, RUNS, RUNS), "running", ""),
        ((DONE, RUNS, NO_IMAGE), "waiting", "ImagePullFailed"),
        ((NO_IMAGE, STARTS, STARTS), "waiting", "ImagePullFailed"),
        ((DONE, RUNS, KILLED), "restarting", "OutOfMemory"),
    ],
)
def test_pod_when_one_container_does_not_run_then_it_says_why(
    states: tuple[dict[str, Any], dict[str, Any], dict[str, Any]], state: str, condition: str
) -> None:
    assert _read(*states) == (state, condition)


def test_pod_when_its_init_container_runs_then_it_does_not_run_yet() -> None:
    assert _read(RUNS, STARTS, STARTS)[0] == "waiting"
