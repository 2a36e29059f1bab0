"""The chart on a node: up by its defaults, `helm test`, a job that loses its pods, idle, gone.

The tests are one story in this order: each finds the release as the one before left it.
"""

import contextlib
import re
import subprocess
import time
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import yaml
from helm_release import Helm
from kube_server import find_program
from one_node import OneNode
from platform_world import tiny_spec

from troupe.clients.rest import RestClient
from troupe_router.cluster import names

READY_GOAL_S = 60
IDLE_CPU_GOAL, IDLE_MIB_GOAL = 0.25, 600
IDLE_FOR_S = 60
STEPS = 6


def test_chart_when_installed_by_its_defaults_then_is_ready(
    node: OneNode, release: Helm, figures: dict[str, str]
) -> None:
    repository, _, tag = node.redis_image.rpartition(":")
    began = time.monotonic()
    # The public image of Redis, or what stands in for it where there is no registry.
    image = (f'redis.image.repository="{repository}"', f'redis.image.tag="{tag}"')
    release.install("install", *image, 'image.pullPolicy="Never"')
    _until(lambda: _are_ready(release, "router", "redis"), lambda: _why(release), 600)
    took = time.monotonic() - began
    figures["router and Redis Ready after `helm install`"] = f"{took:.1f} s, goal {READY_GOAL_S} s"
    assert _restarts(release) == 0


def test_helm_test_when_the_demos_model_is_made_then_its_job_ends_well(
    node: OneNode, release: Helm, figures: dict[str, str]
) -> None:
    began = time.monotonic()
    _until(lambda: _is_model_made(release), lambda: _why(release), 2400)
    figures["the demo's model, from the install on"] = f"{time.monotonic() - began:.1f} s more"
    began = time.monotonic()
    said = release.run("test", "troupe", "--timeout", "900s", timeout_s=1000)
    assert re.search(r"Phase: +Succeeded", said), said
    figures["helm test"] = f"{time.monotonic() - began:.1f} s"


def test_port_when_forwarded_as_the_notes_say_then_the_router_answers(
    release: Helm, free_port: Callable[[], int]
) -> None:
    port = free_port()
    kubectl = find_program("kubectl")
    assert kubectl is not None
    argv = [kubectl, f"--kubeconfig={release.server.kubeconfig()}", "-n", release.namespace]
    argv += ["port-forward", "service/troupe-router", f"{port}:8480"]
    forwarding = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    try:
        with RestClient(f"http://127.0.0.1:{port}") as client:
            _until(client.is_up, lambda: f"port-forward: {forwarding.poll()}", 60)
            assert [job.state for job in client.jobs()] == ["succeeded"]
    finally:
        forwarding.terminate()
        _, said = forwarding.communicate(timeout=20)
    assert b"unable to" not in said, said


def test_job_when_its_rollout_and_trainer_pods_are_deleted_in_mid_step_then_reaches_its_end(
    release: Helm, figures: dict[str, str]
) -> None:
    base = tiny_spec(Path("models/plan_path_6x6"))
    params = {"size": 6, "max_actions": 4}
    spec = {
        **base,
        "name": "on-a-node",
        "steps": STEPS,
        "task": {"name": "plan_path", "params": params},
        "limits": {"startup_timeout_s": 1200},
    }
    began = time.monotonic()
    with RestClient(_router_url(release), retry_for_s=60) as client:
        job_id = client.submit(spec).job_id
        _await_job(client, release, job_id, lambda j: j.state == "running" and j.step >= 1)
        for workload in ("rollout", "trainer"):
            before = client.job(job_id).step
            killed = _delete_pod(release, job_id, workload)
            _await_job(client, release, job_id, lambda j, at=before: j.step > at)
            assert killed not in [pod["metadata"]["uid"] for pod in _pods(release, job_id)]
        job = _await_job(client, release, job_id, lambda j: j.state == "succeeded")
        assert job.step == STEPS
        assert client.metrics(job_id).train.steps == list(range(STEPS))
    figures[f"a job of {STEPS} steps that lost two pods"] = f"{time.monotonic() - began:.1f} s"
    _until(lambda: _pods(release, job_id) == [], lambda: _why(release), 180)


def test_release_when_idle_then_costs_little(
    node: OneNode, release: Helm, figures: dict[str, str]
) -> None:
    with _an_env_without_a_job(release):
        pods = [pod for pod in _pods(release) if pod["status"]["phase"] == "Running"]
        components = [pod["metadata"]["labels"][names.COMPONENT] for pod in pods]
        assert sorted(components) == ["env", "redis", "router"]
        cpu, memory = _cost(node, pods)
    shown = ", ".join(f"{name} {cpu[name]:.3f} CPU {memory[name]:.0f} MiB" for name in cpu)
    figures["idle"] = f"{sum(cpu.values()):.3f} CPU, {sum(memory.values()):.0f} MiB ({shown})"
    assert sum(cpu.values()) <= IDLE_CPU_GOAL
    assert sum(memory.values()) <= IDLE_MIB_GOAL


def test_release_when_uninstalled_then_leaves_nothing(release: Helm) -> None:
    release.run("uninstall", "troupe", "--wait", "--timeout", "120s", timeout_s=200)
    # The volume of a StatefulSet goes by its retention policy, which came with 1.27.
    kept = ["secrets/default-token-"]  # of the namespace's own service account
    kept += ["persistentvolumeclaims/data-troupe-redis"] if release.is_old else []
    _until(lambda: release.objects(without=tuple(kept)) == [], lambda: _why(release), 180)


@contextlib.contextmanager
def _an_env_without_a_job(release: Helm) -> Generator[None]:
    """The pod that the launcher would make for a job's env, and no job: it waits for one."""
    base = f"/api/v1/namespaces/{release.namespace}/configmaps/troupe-launcher"
    with release.server.http() as http:
        given = yaml.safe_load(http.get(base).json()["data"]["workloads.yaml"])
        [template] = [t for t in given if t["metadata"]["labels"][names.COMPONENT] == "env"]
        labels = template["spec"]["template"]["metadata"]["labels"]
        made = {**template, "metadata": {"name": "idle-env"}}
        made["spec"] |= {"replicas": 1, "serviceName": "", "selector": {"matchLabels": labels}}
        path = f"/apis/apps/v1/namespaces/{release.namespace}/statefulsets"
        http.post(path, json=made).raise_for_status()
        try:
            _until(lambda: _is_started(release, "idle-env-0"), lambda: _why(release), 300)
            yield
        finally:
            http.delete(f"{path}/idle-env").raise_for_status()


def _is_started(release: Helm, name: str) -> bool:
    statuses = [
        status
        for pod in _pods(release)
        if pod["metadata"]["name"] == name
        for status in pod["status"].get("containerStatuses", [])
    ]
    return [status.get("started") for status in statuses] == [True]


def _cost(node: OneNode, pods: list[dict[str, Any]]) -> tuple[dict[str, float], dict[str, float]]:
    """Cores and MiB of each pod, by its name, over a minute."""
    before = {pod["metadata"]["name"]: node.cpu_s(pod) for pod in pods}
    began = time.monotonic()
    time.sleep(IDLE_FOR_S)
    took = time.monotonic() - began
    by_name = {pod["metadata"]["name"]: pod for pod in pods}
    cpu = {name: (node.cpu_s(pod) - before[name]) / took for name, pod in by_name.items()}
    return cpu, {name: node.memory_mib(pod) for name, pod in by_name.items()}


def _until(holds: Callable[[], bool], why: Callable[[], str], timeout_s: float) -> None:
    deadline = time.monotonic() + timeout_s
    while not holds():
        assert time.monotonic() < deadline, why()
        time.sleep(0.2)


def _await_job(client: RestClient, release: Helm, job_id: str, holds: Callable[[Any], bool]) -> Any:
    deadline = time.monotonic() + 1800
    while not holds(job := client.job(job_id)):
        assert job.state not in ("failed", "cancelled"), f"{job.reason}\n{_why(release)}"
        assert time.monotonic() < deadline, f"never as wanted: {job}\n{_why(release)}"
        time.sleep(0.2)
    return job


def _items(release: Helm, path: str) -> list[dict[str, Any]]:
    with release.server.http() as http:
        answer = http.get(path.format(namespace=release.namespace))
    answer.raise_for_status()
    return answer.json()["items"]


def _pods(release: Helm, job_id: str = "") -> list[dict[str, Any]]:
    query = f"?labelSelector={names.OWNER}={job_id}" if job_id else ""
    return _items(release, f"/api/v1/namespaces/{{namespace}}/pods{query}")


def _are_ready(release: Helm, *components: str) -> bool:
    ready = {
        pod["metadata"]["labels"][names.COMPONENT]
        for pod in _pods(release)
        for condition in pod["status"].get("conditions", [])
        if condition["type"] == "Ready" and condition["status"] == "True"
    }
    return ready >= set(components)


def _restarts(release: Helm) -> int:
    statuses = [s for pod in _pods(release) for s in pod["status"].get("containerStatuses", [])]
    return sum(status["restartCount"] for status in statuses)


def _is_model_made(release: Helm) -> bool:
    jobs = _items(release, "/apis/batch/v1/namespaces/{namespace}/jobs")
    return [job["status"].get("succeeded", 0) for job in jobs] == [1]


def _delete_pod(release: Helm, job_id: str, workload: str) -> str:
    """Delete the one pod of this part of the job at once, without its grace; its uid."""
    [pod] = [p for p in _pods(release, job_id) if workload in p["metadata"]["name"]]
    path = f"/api/v1/namespaces/{release.namespace}/pods/{pod['metadata']['name']}"
    with release.server.http() as http:
        http.request("DELETE", path, params={"gracePeriodSeconds": 0}).raise_for_status()
    return pod["metadata"]["uid"]


def _router_url(release: Helm) -> str:
    path = f"/api/v1/namespaces/{release.namespace}/services/troupe-router"
    with release.server.http() as http:
        address = http.get(path).json()["spec"]["clusterIP"]
    return f"http://{address}:8480"


def _why(release: Helm) -> str:
    """What the cluster says: events, and the last words of each container."""
    events = [
        f"{e['involvedObject'].get('name')}: {e.get('reason')}: {e.get('message')}"
        for e in _items(release, "/api/v1/namespaces/{namespace}/events")
    ]
    logs: list[str] = []
    with release.server.http() as http:
        for pod in _pods(release):
            name = pod["metadata"]["name"]
            path = f"/api/v1/namespaces/{release.namespace}/pods/{name}/log?tailLines=20"
            logs.append(f"== {name} {pod['status'].get('phase')}\n{http.get(path).text[-2000:]}")
    return "\n".join([*events[-40:], *logs])
