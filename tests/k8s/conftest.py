"""A real API server. Run by `make test-k8s`; anywhere else these tests are skipped."""

import asyncio
import gc
import shutil
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest
from kube_server import PROGRAMS, KubeServer, find_program
from kube_world import ClusterWorld

HERE = Path(__file__).parent


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    missing = [p for p in PROGRAMS if find_program(p) is None]
    missing += [p for p in ("openssl",) if shutil.which(p) is None]
    why = ""
    if "k8s" not in str(config.getoption("-m")):
        why = "a real API server takes minutes; run `make test-k8s`"
    elif missing:
        why = f"no {', '.join(missing)} here; `python scripts/get_kubernetes.py` makes them"
    for item in items:
        if HERE not in item.path.parents:
            continue
        item.add_marker(pytest.mark.k8s)
        # A watch cut in its TLS shutdown closes on the loop's next round; a test has none.
        unraisable = "ignore::pytest.PytestUnraisableExceptionWarning"
        item.add_marker(pytest.mark.filterwarnings(unraisable))
        if why:
            item.add_marker(pytest.mark.skip(reason=why))


@pytest.fixture(scope="session")
def server(
    tmp_path_factory: pytest.TempPathFactory, free_port: Callable[[], int]
) -> Iterator[KubeServer]:
    made = KubeServer(tmp_path_factory.mktemp("kube"), free_port)
    try:
        made.start()
        yield made
    finally:
        made.stop()
        # The last test's cut watches go while that test's filter still holds.
        gc.collect()


@pytest.fixture
def namespace(server: KubeServer) -> Iterator[str]:
    """A namespace of this test alone."""
    name = f"t-{uuid.uuid4().hex[:8]}"
    with server.http() as http:
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        http.post("/api/v1/namespaces", json=body).raise_for_status()
        yield name
        http.delete(f"/api/v1/namespaces/{name}").raise_for_status()


@pytest.fixture
async def cluster(server: KubeServer, namespace: str) -> AsyncIterator[ClusterWorld]:
    made = RealCluster(server, namespace)
    await made.install()
    async with made.running():
        yield made


class RealCluster(ClusterWorld):
    """Real controllers, and quotas that are enforced."""

    def __init__(self, server: KubeServer, namespace: str) -> None:
        super().__init__(server.configuration(), namespace, plays=False)
        self._server = server

    def limit(self, hard: dict[str, str]) -> None:
        """A ResourceQuota that the API server enforces from now on."""
        path = f"/api/v1/namespaces/{self.namespace}/resourcequotas"
        body = {
            "apiVersion": "v1",
            "kind": "ResourceQuota",
            "metadata": {"name": "limit"},
            "spec": {"hard": hard},
        }
        with self._server.http() as http:
            http.post(path, json=body).raise_for_status()

    async def until_limited(self) -> None:
        """The quota's use is counted, so it is enforced."""
        path = f"/api/v1/namespaces/{self.namespace}/resourcequotas/limit"
        async with asyncio.timeout(60):
            with self._server.http() as http:
                while "hard" not in http.get(path).json().get("status", {}):  # noqa: ASYNC110
                    await asyncio.sleep(0.1)
