"""A whole job through the Kubernetes launcher: real router, API server, controllers, services.

Only the node is missing: each pod's container runs as a process of this machine.
"""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helm_release import Helm, token_of
from kube_server import KubeServer
from kubelet import ProcessKubelet
from platform_world import tiny_spec
from test_chart_on_apiserver import helm  # noqa: F401 (a fixture)

from troupe.clients.rest import RestClient
from troupe_router.cluster import names
from troupe_router.cluster.api import CONFIG_MAP, POD, ClusterApi

pytestmark = pytest.mark.timeout(900)

LIMITS = {"startup_timeout_s": 120}


@pytest.fixture(scope="module")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A base model of a few thousand parameters."""
    folder = tmp_path_factory.mktemp("models") / "tiny"
    shape = {"hidden_size": 64, "num_layers": 2, "num_heads": 2, "intermediate_size": 128}
    start = {"num_careful_steps": 40, "num_careless_steps": 10, "batch_size": 16}
    argv = [sys.executable, "-m", "troupe_trainer.tiny_model", "--task", "plan_path"]
    argv += ["--size", "4", "--seed", "1", "--shape", json.dumps(shape)]
    argv += ["--params", '{"max_actions": 3}', "--warm-start", json.dumps(start)]
    subprocess.run([*argv, "--out", str(folder)], check=True, capture_output=True, timeout=400)
    return folder


@pytest.fixture
def start_router(
    helm: Helm,  # noqa: F811
    server: KubeServer,
    valkey_server: Any,
    free_port: Callable[[], int],
    tmp_path: Path,
) -> Any:
    """``start_router()``: a router process with the chart's rights; its address and REST port."""
    # This kubelet mounts no volumes, so the processes hold no certificates.
    helm.install("install", "tls.enabled=false")
    kubeconfig = json.loads(server.kubeconfig().read_text("utf-8"))
    kubeconfig["users"][0]["user"]["token"] = token_of(server, helm.namespace, "troupe-router")
    path = tmp_path / "router.kubeconfig"
    path.write_text(json.dumps(kubeconfig), encoding="utf-8")
    rest, grpc = free_port(), free_port()
    processes: list[subprocess.Popen[bytes]] = []

    def start() -> tuple[subprocess.Popen[bytes], str, int]:
        settings = {
            "REST_ADDRESS": f"127.0.0.1:{rest}",
            "GRPC_ADDRESS": f"127.0.0.1:{grpc}",
            "REDIS_URL": valkey_server.url,
            "RUNS_DIR": str(tmp_path / "runs"),
            "LAUNCHER": "kubernetes",
            "KUBECONFIG": str(path),
            "NAMESPACE": helm.namespace,
        }
        kept = {k: v for k, v in os.environ.items() if not k.startswith("TROUPE_")}
        with (tmp_path / "router.log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "troupe_router"],
                env={**kept, **{f"TROUPE_ROUTER_{k}": v for k, v in settings.items()}},
                stdout=log,
                stderr=log,
            )
        processes.append(process)
        return process, f"127.0.0.1:{grpc}", rest

    yield start
    for process in processes:
        process.kill()
        process.wait(timeout=20)


async def _until(client: RestClient, job_id: str, holds: Callable[[Any], bool], why: Any) -> Any:
    job: Any = None
    try:
        async with asyncio.timeout(400):
            while True:
                job = await asyncio.to_thread(client.job, job_id)
                if holds(job):
                    return job
                assert job.state != "failed", f"{job.reason}\n{why()}"
                await asyncio.sleep(0.5)
    except TimeoutError:
        raise AssertionError(f"never as wanted: {job}\n{why()}") from None


async def test_job_when_pods_and_the_router_die_in_mid_step_then_reaches_its_end(
    helm: Helm,  # noqa: F811
    server: KubeServer,
    start_router: Any,
    valkey_server: Any,
    tiny_model: Path,
    tmp_path: Path,
) -> None:
    router, address, rest = start_router()
    api = ClusterApi(server.configuration(), helm.namespace)
    redis = valkey_server.url.removeprefix("redis://").partition("/")[0]
    hosts = {"troupe-router:8481": address, "troupe-redis:6379": redis}
    logs = tmp_path / "logs"
    logs.mkdir()
    kubelet = ProcessKubelet(api, logs, hosts)

    def why() -> str:
        said = (tmp_path / "router.log").read_text("utf-8", errors="replace")[-4000:]
        return f"{said}\n{kubelet.logs()[-8000:]}"

    train = {"kind": "lora", "rank": 4, "alpha": 8}
    policy = {"model": str(tiny_model), "train": train}
    spec = tiny_spec(tiny_model) | {"policies": {"shared": policy}, "limits": LIMITS}
    async with kubelet.running():
        with RestClient(f"http://127.0.0.1:{rest}", retry_for_s=60) as client:
            job_id = (await asyncio.to_thread(client.submit, spec)).job_id
            await _until(client, job_id, lambda j: j.state == "running" and j.step >= 1, why)
            mine = f"{names.OWNER}={job_id}"
            pods = (await api.list(POD, labels=mine))[0]
            assert len(pods) == 3
            [rollout] = [pod for pod in pods if "rollout" in pod["metadata"]["name"]]
            await api.delete(POD, rollout["metadata"]["name"], grace_s=0)
            router.kill()
            await asyncio.to_thread(router.wait, 20)
            start_router()
            job = await _until(client, job_id, lambda j: j.state == "succeeded", why)
            assert job.step == 3
        assert (await api.list(POD, labels=mine))[0] == []
        assert (await api.list(CONFIG_MAP, labels=mine))[0] == []
    await api.close()
