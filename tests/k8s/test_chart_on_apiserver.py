"""The chart's whole life on a real API server, and a job launched with the chart's own rights."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from helm_release import CHART, Helm, token_of
from kube_server import ROOT, KubeServer, find_program
from kube_world import ClusterWorld, until

from troupe.spec import load_spec
from troupe_router.cluster.api import CONFIG_MAP, JOB, POD, STATEFUL_SET, ClusterApi, RefusedError
from troupe_router.cluster.launcher import KubernetesLauncher
from troupe_router.jobs.processes import components
from troupe_router.settings import RouterSettings


@pytest.fixture
def helm(server: KubeServer, namespace: str, tmp_path: Path) -> Iterator[Helm]:
    if find_program("helm") is None:
        pytest.skip("helm is not installed; `python scripts/get_helm.py` fetches the pinned one")
    yield Helm(server, namespace, tmp_path)


def test_secrets_when_upgraded_then_are_kept_and_a_deleted_one_is_made_anew(helm: Helm) -> None:
    helm.install("install")
    first = _secrets(helm)
    roles = ("authority", "router", "rollout", "env", "trainer", "redis")
    assert set(first) == {"troupe-redis-password", *(f"troupe-tls-{role}" for role in roles)}
    helm.install("upgrade", "router.replicas=2")
    assert _secrets(helm) == first
    with helm.server.http() as http:
        path = f"/api/v1/namespaces/{helm.namespace}/secrets/troupe-tls-env"
        http.delete(path).raise_for_status()
    helm.install("upgrade", "router.replicas=1")
    second = _secrets(helm)
    assert {name for name in first if first[name] != second[name]} == {"troupe-tls-env"}
    # The same authority signed it, so its peers know it at once.
    assert second["troupe-tls-env"]["ca.crt"] == first["troupe-tls-env"]["ca.crt"]


def test_chart_when_installed_upgraded_rolled_back_and_removed_then_leaves_nothing(
    helm: Helm,
) -> None:
    assert "STATUS: deployed" in helm.install("install")
    before = helm.objects()
    assert {
        "deployments/troupe-router",
        "statefulsets/troupe-redis",
        "configmaps/troupe-launcher",
        "networkpolicies/troupe-default-deny",
        "roles/troupe-launcher",
    } <= set(before)
    helm.install("upgrade", "router.replicas=3", 'image.tag="0.1.1"')
    assert _router(helm)["spec"]["replicas"] == 3
    assert _router_image(helm) == "troupe/router:0.1.1"
    helm.run("rollback", "troupe", "1")
    assert _router(helm)["spec"]["replicas"] == 1
    assert _router_image(helm) == "troupe/router:0.1.0"
    helm.run("uninstall", "troupe", "--wait", "--timeout", "60s")
    # The volume of a StatefulSet goes by its retention policy, which came with 1.27.
    kept = ("persistentvolumeclaims/data-troupe-redis",) if helm.is_old else ()
    _until_gone(helm, kept)


def test_chart_when_a_job_runs_then_its_objects_leave_with_the_release(
    helm: Helm, server: KubeServer
) -> None:
    helm.install("install")
    asyncio.run(_launch_demo(helm, server))
    assert "jobs/troupe-demo-1-trainer" in helm.objects()
    helm.run("uninstall", "troupe", "--wait", "--timeout", "60s")
    kept = ("persistentvolumeclaims/data-troupe-redis",) if helm.is_old else ()
    _until_gone(helm, kept)


async def _launch_demo(helm: Helm, server: KubeServer) -> None:
    """Reconcile the demo with the rights that the chart gives the router, and no others."""
    configuration = server.configuration(token_of(server, helm.namespace, "troupe-router"))
    api = ClusterApi(configuration, helm.namespace)
    launcher = KubernetesLauncher(api, release="troupe", events_every_s=0.1)
    settings = RouterSettings(launcher="kubernetes", env_replicas=2)
    spec = load_spec(ROOT / "examples" / "demo.yaml")
    wanted = components("demo-1", spec, settings, router="10.0.0.9:8481")
    world = ClusterWorld(server.configuration(), helm.namespace, plays=False)
    async with world.running():
        found = await until(
            launcher,
            wanted,
            lambda s: all(status.state == "running" for status in s.values()),
            owner="demo-1",
        )
        assert list(found) == ["trainer-0", "rollout-shared-0", "env-0", "env-1"]
        [job] = [j for j in (await world.api.list(JOB))[0] if "demo-1" in j["metadata"]["name"]]
        assert job["spec"]["backoffLimit"] == 6
        envs = await world.api.get(STATEFUL_SET, "troupe-demo-1-env")
        assert envs["spec"]["replicas"] == 2
        pods = (await world.api.list(POD, labels="troupe.dev/job=demo-1"))[0]
        assert all(pod["spec"]["automountServiceAccountToken"] is False for pod in pods)
    await launcher.close()


async def test_router_when_it_has_the_charts_rights_then_can_do_no_more(
    helm: Helm, server: KubeServer
) -> None:
    await asyncio.to_thread(helm.install, "install")
    token = token_of(server, helm.namespace, "troupe-router")
    api = ClusterApi(server.configuration(token), helm.namespace)
    await api.list(CONFIG_MAP)
    with pytest.raises(RefusedError, match="cannot patch resource"):
        await api.patch(CONFIG_MAP, "troupe-launcher", {"data": {"a": "b"}})
    await api.close()
    with server.http(token) as http:
        for path in (
            f"/api/v1/namespaces/{helm.namespace}/secrets",
            "/api/v1/namespaces/kube-system/configmaps",
            "/api/v1/nodes",
            f"/apis/rbac.authorization.k8s.io/v1/namespaces/{helm.namespace}/roles",
        ):
            assert http.get(path).status_code == 403, path


@pytest.mark.parametrize("values", sorted(CHART.glob("values-*.yaml")), ids=lambda p: p.stem)
def test_values_when_the_api_server_reads_them_then_accepts_every_object(
    helm: Helm, values: Path
) -> None:
    """Server-side validation and admission of what this server's version knows."""
    rendered = helm.run("template", "troupe", str(helm.chart), "--values", str(values))
    known = 0
    with helm.server.http() as http:
        for found in filter(None, yaml.safe_load_all(rendered)):
            answer = _dry_run(http, helm.namespace, found)
            if answer is None:
                assert helm.is_old, f"this server has no {found['apiVersion']} {found['kind']}"
                continue
            assert answer.status_code in (200, 201), (found["metadata"]["name"], answer.text)
            known += 1
    assert known > 20


def _dry_run(http: httpx.Client, namespace: str, found: dict[str, Any]) -> httpx.Response | None:
    """What the server says to the object; None when it does not know the kind."""
    version = found["apiVersion"]
    base = f"/apis/{version}" if "/" in version else f"/api/{version}"
    listing = http.get(base)
    if listing.status_code == 404:
        return None
    plurals = [
        resource["name"]
        for resource in listing.json()["resources"]
        if resource["kind"] == found["kind"] and "/" not in resource["name"]
    ]
    if not plurals:
        return None
    path = f"{base}/namespaces/{namespace}/{plurals[0]}"
    return http.post(path, params={"dryRun": "All"}, json=found)


def _router(helm: Helm) -> dict[str, Any]:
    path = f"/apis/apps/v1/namespaces/{helm.namespace}/deployments/troupe-router"
    with helm.server.http() as http:
        return http.get(path).json()


def _secrets(helm: Helm) -> dict[str, dict[str, str]]:
    with helm.server.http() as http:
        items = http.get(f"/api/v1/namespaces/{helm.namespace}/secrets").json()["items"]
    # helm's own hold the releases; old servers make one for each account.
    return {
        item["metadata"]["name"]: item["data"]
        for item in items
        if item["type"] in ("kubernetes.io/tls", "Opaque")
    }


def _router_image(helm: Helm) -> str:
    return str(_router(helm)["spec"]["template"]["spec"]["containers"][0]["image"])


def _until_gone(helm: Helm, kept: tuple[str, ...]) -> None:
    for _ in range(300):
        left = helm.objects(without=kept)
        if not left:
            return
        with helm.server.http() as http:
            # No kubelet confirms the end of pods here.
            for name in [name for name in left if name.startswith("pods/")]:
                path = f"/api/v1/namespaces/{helm.namespace}/{name}"
                http.request("DELETE", path, params={"gracePeriodSeconds": 0})
            http.get("/readyz")
    raise AssertionError(f"left behind: {left}")
