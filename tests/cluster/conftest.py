"""A cluster of one node on this machine. Only where `--one-node-cluster` is given.

A kubelet changes kernel settings and a kube-proxy the firewall, so nobody gets one unasked;
`make test-cluster` asks. What was changed is put back afterwards.
"""

import os
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from compose_engine import BASES, Engine, find_engine
from helm_release import Helm
from kube_server import PROGRAMS, find_program
from machine_settings import is_a_kubelet_running, kept_as_they_are
from one_node import OneNode

HERE = Path(__file__).parent
NEEDED = (*PROGRAMS, "kube-scheduler", "kubelet", "kube-proxy", "helm", "kubectl")
ON_PATH = ("dnsmasq", "iptables-save", "socat", "openssl")
IMAGES = ("router", "env", "rollout", "trainer")
FIGURES: dict[str, str] = {}
"""What was measured, for the summary."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--one-node-cluster",
        action="store_true",
        help="run a kubelet on this machine: kernel settings and firewall change meanwhile",
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    why = ""
    missing = [program for program in (*NEEDED, *ON_PATH) if find_program(program) is None]
    if not config.getoption("--one-node-cluster", default=False):
        why = "a kubelet changes this machine's kernel settings; `make test-cluster` runs one"
    elif os.geteuid() != 0:
        why = "a kubelet needs root"
    elif is_a_kubelet_running():
        why = "a kubelet runs here already, and two of them end each other's containers"
    elif missing:
        why = f"no {', '.join(missing)}; `python scripts/get_kubernetes.py --node` and get_helm.py"
    for item in items:
        if HERE not in item.path.parents:
            continue
        item.add_marker(pytest.mark.cluster)
        item.add_marker(pytest.mark.timeout(3000))
        if why:
            item.add_marker(pytest.mark.skip(reason=why))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for name, figure in FIGURES.items():
        terminalreporter.write_line(f"{name}: {figure}")


@pytest.fixture(scope="session")
def node(
    tmp_path_factory: pytest.TempPathFactory, free_port: Callable[[], int]
) -> Iterator[OneNode]:
    """The cluster, with the images of this checkout in its engine."""
    variables = find_engine()
    if variables is None:
        pytest.skip("no Docker Engine here; `python scripts/docker_engine.py start` says why")
    engine = Engine(variables, tmp_path_factory.mktemp("images"), 0)
    engine.prepare()
    # From the cache where compose built them before.
    engine.compose("build", *IMAGES, timeout_s=2700)
    engine.close()
    python, redis = (engine.image(variable) for variable in BASES)
    with kept_as_they_are():
        folder = tmp_path_factory.mktemp("node")
        made = OneNode(folder, free_port, variables=variables, base_image=python, redis_image=redis)
        try:
            made.start()
            yield made
        finally:
            made.stop()


@pytest.fixture(scope="session")
def release(node: OneNode, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Helm]:
    """helm on a namespace of its own, with volumes to bind; nothing is installed yet."""
    name = f"t-{uuid.uuid4().hex[:8]}"
    with node.http() as http:
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        http.post("/api/v1/namespaces", json=body).raise_for_status()
    for volume, size in (("runs", "10Gi"), ("models", "10Gi"), ("redis", "8Gi")):
        node.add_volume(volume, size)
    yield Helm(node, name, tmp_path_factory.mktemp("helm"))


@pytest.fixture(scope="session")
def figures() -> dict[str, str]:
    """What is measured goes here and is shown at the end."""
    return FIGURES
