"""A job may name weights of an earlier run: who loads them has the runs volume, or says no."""

from pathlib import Path
from typing import Any

import pytest
from chart_world import EVERYTHING, Manifests, Render

from troupe_router.settings import RouterSettings


def mounts(manifests: Manifests) -> dict[str, dict[str, Any]]:
    """Container -> its mount of the claim of runs, of those that have one."""
    found: dict[str, dict[str, Any]] = {}
    for _, container, pod in manifests.containers():
        claims = {
            volume["name"]: volume["persistentVolumeClaim"]["claimName"]
            for volume in pod["volumes"]
            if "persistentVolumeClaim" in volume
        }
        for mount in container["volumeMounts"]:
            if claims.get(mount["name"]) in ("t-troupe-runs", "shared-runs"):
                found[container["name"]] = mount
    return found


@pytest.mark.parametrize("values", [[], [EVERYTHING]], ids=["launcher", "everything"])
def test_rollouts_when_a_job_names_weights_of_a_run_then_read_them_where_the_trainer_does(
    render: Render, values: list[Path]
) -> None:
    found = mounts(render(values))
    paths = {name: found[name]["mountPath"] for name in ("router", "trainer", "rollout")}
    assert set(paths.values()) == {"/srv/runs"}
    assert found["rollout"]["readOnly"] is True
    assert not {"env", "play", "redis"} & found.keys()


def test_rollouts_when_they_mount_no_runs_then_the_router_refuses_such_jobs(render: Render) -> None:
    manifests = render([], "rollout.mountRuns=false")
    assert mounts(manifests).keys() == {"router", "trainer"}
    [router] = [c for _, c, _ in manifests.containers() if c["name"] == "router"]
    given = {v["name"]: v.get("value") for v in router["env"]}["TROUPE_ROUTER_MODELS_OF_RUNS"]
    assert RouterSettings(models_of_runs=given).models_of_runs is False
