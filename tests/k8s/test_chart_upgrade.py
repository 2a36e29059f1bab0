"""helm upgrade from the previous chart on a real API server: a running job keeps its pods."""

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from helm_release import Helm
from kube_server import ROOT, KubeServer, find_program
from kube_world import ClusterWorld, until
from previous_version import extract_previous

from troupe.spec import load_spec
from troupe_router.cluster.api import CONFIG_MAP, JOB, POD, STATEFUL_SET, ClusterApi
from troupe_router.cluster.launcher import KubernetesLauncher
from troupe_router.jobs.processes import components
from troupe_router.settings import RouterSettings

KEPT_PLAIN = ("tls.enabled=false", "redis.generatePassword=false")
"""The running job's pods speak without TLS and without a password: so must the new router."""


@pytest.fixture
def releases(server: KubeServer, namespace: str, tmp_path: Path) -> Iterator[tuple[Helm, Helm]]:
    """helm with the previous chart, and with this one, on one namespace."""
    if find_program("helm") is None:
        pytest.skip("helm is not installed; `python scripts/get_helm.py` fetches the pinned one")
    found = extract_previous(tmp_path / "previous", "deploy/helm/troupe") / "deploy/helm/troupe"
    old, new = (Helm(server, namespace, tmp_path / name) for name in ("old", "new"))
    old.chart = found
    if old.is_old:
        chart = (found / "Chart.yaml").read_text("utf-8")
        without = re.sub(r"^kubeVersion:.*\n", "", chart, flags=re.MULTILINE)
        (found / "Chart.yaml").write_text(without, encoding="utf-8")
    yield old, new


def test_chart_when_upgraded_from_the_previous_then_a_running_job_keeps_its_pods(
    releases: tuple[Helm, Helm], server: KubeServer
) -> None:
    old, new = releases
    old.install("install")
    asyncio.run(_job_over_upgrade(old, new, server))
    # And back: what the job began with is still what it runs with.
    new.run("rollback", "troupe", "1")
    assert "jobs/troupe-demo-1-trainer" in new.objects()
    new.run("uninstall", "troupe", "--wait", "--timeout", "60s")


async def _job_over_upgrade(old: Helm, new: Helm, server: KubeServer) -> None:
    settings = RouterSettings(launcher="kubernetes", env_replicas=2)
    spec = load_spec(ROOT / "examples" / "demo.yaml")
    wanted = components("demo-1", spec, settings, router="10.0.0.9:8481")
    world = ClusterWorld(server.configuration(), old.namespace, plays=False)

    async def bring_up() -> None:
        """What a router does that finds the job: adopt what there is, make what is missing."""
        api = ClusterApi(server.configuration(), old.namespace)
        launcher = KubernetesLauncher(api, release="troupe", events_every_s=0.1)
        try:
            await until(
                launcher,
                wanted,
                lambda s: len(s) == 4 and all(each.state == "running" for each in s.values()),
                owner="demo-1",
            )
        finally:
            await launcher.close()

    async with world.running():
        await bring_up()
        before = await _workloads(world)
        assert len(before) == 7, "a Job, two StatefulSets and four pods"
        given = await world.api.get(CONFIG_MAP, "troupe-launcher")
        await asyncio.to_thread(new.install, "upgrade", 'image.tag="9.9.9"', *KEPT_PLAIN)
        replaced = await world.api.get(CONFIG_MAP, "troupe-launcher")
        assert replaced["data"] != given["data"], "the upgrade changed no template"
        await bring_up()
        assert await _workloads(world) == before


async def _workloads(world: ClusterWorld) -> dict[tuple[str, str], tuple[str, str]]:
    """(kind, name) -> (uid, images) of all that works for the job."""
    found: dict[tuple[str, str], tuple[str, str]] = {}
    for kind in (JOB, STATEFUL_SET, POD):
        for each in (await world.api.list(kind, labels="troupe.dev/job=demo-1"))[0]:
            pod = each["spec"] if kind is POD else each["spec"]["template"]["spec"]
            images = ",".join(container["image"] for container in pod["containers"])
            meta = each["metadata"]
            found[kind.name, meta["name"]] = meta["uid"], images
    return found


def test_chart_when_upgraded_from_the_previous_with_todays_defaults_then_the_server_takes_it(
    releases: tuple[Helm, Helm],
) -> None:
    old, new = releases
    old.install("install")
    new.install("upgrade")
    assert {"secrets/troupe-tls-router", "statefulsets/troupe-redis"} <= set(new.objects())
    new.run("uninstall", "troupe", "--wait", "--timeout", "60s")
