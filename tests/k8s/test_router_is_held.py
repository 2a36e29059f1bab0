"""The router's account on a real API server, with all rights: the chart's policy alone holds it.

Needs kube-apiserver 1.30 or newer in `.tools/`; Debian's is older, and there this is skipped.
"""

import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from helm_release import Helm, token_of
from kube_attacks import OTHER, Request, launched, other_attacks, workload_attacks
from kube_server import ROOT, KubeServer, find_program

from troupe.spec import load_spec

RELEASE = "troupe"
DENIED = "denied request"
INVALID = {
    f"{kind}: {name}"
    for kind in ("Job", "StatefulSet")
    for name in ("privileges", "an init container with privileges", "a host process of Windows")
}
"""Attacks that this API server refuses by itself (--allow-privileged is off), before any policy."""


@pytest.fixture
def helm(server: KubeServer, namespace: str, tmp_path: Path) -> Iterator[Helm]:
    if find_program("helm") is None:
        pytest.skip("helm is not installed; `python scripts/get_helm.py` fetches the pinned one")
    if int(re.match(r"v1\.(\d+)", server.version)[1]) < 30:  # type: ignore[index]
        pytest.skip(f"kube-apiserver {server.version} has no ValidatingAdmissionPolicy v1")
    yield Helm(server, namespace, tmp_path)


@pytest.mark.timeout(600)
def test_router_when_it_has_every_right_then_the_policy_refuses_each_way_to_a_secret(
    helm: Helm, server: KubeServer
) -> None:
    helm.install("install")
    _grant_everything(helm)
    with server.http() as admin:
        path = f"/api/v1/namespaces/{helm.namespace}/configmaps/{RELEASE}-launcher"
        workloads = admin.get(path).json()["data"]["workloads.yaml"]
    own = launched(workloads, load_spec(ROOT / "examples" / "demo.yaml"), RELEASE)
    with server.http(token_of(server, helm.namespace, f"{RELEASE}-router")) as router:
        _until_held(router, helm.namespace)
        let_through = [request.name for request in own if _words(router, helm, request)]
        assert let_through == []
        answers = {
            attack.name: _words(router, helm, attack)
            for attack in [*workload_attacks(own), *other_attacks(RELEASE)]
            if attack.operation in ("CREATE", "CONNECT")
        }
    assert len(answers) > 100
    assert [name for name, words in answers.items() if not words] == []
    # Some the server refuses by itself, before it asks a policy; they make no pod either.
    by_server = {name: words for name, words in answers.items() if DENIED not in words}
    assert by_server.keys() <= INVALID, by_server
    helm.run("uninstall", RELEASE)
    with server.http() as admin:
        base = "/apis/admissionregistration.k8s.io/v1"
        for kind in ("validatingadmissionpolicies", "validatingadmissionpolicybindings"):
            assert admin.get(f"{base}/{kind}").json()["items"] == []


def _grant_everything(helm: Helm) -> None:
    subject = {"kind": "ServiceAccount", "name": f"{RELEASE}-router", "namespace": helm.namespace}
    body: dict[str, Any] = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": {"name": "everything"},
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io",
            "kind": "ClusterRole",
            "name": "cluster-admin",
        },
        "subjects": [subject],
    }
    path = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{helm.namespace}/rolebindings"
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": OTHER}}
    with helm.server.http() as http:
        accounts = f"/api/v1/namespaces/{helm.namespace}/serviceaccounts"
        http.post(accounts, json=account).raise_for_status()
        http.post(path, json=body).raise_for_status()


def _until_held(router: httpx.Client, namespace: str) -> None:
    """The API server learns of a policy within a second or so."""
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": OTHER}}
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    deadline = time.monotonic() + 60
    while DENIED not in router.post(path, params={"dryRun": "All"}, json=body).text:
        assert time.monotonic() < deadline, "the policy does not act"
        time.sleep(0.2)


def _words(router: httpx.Client, helm: Helm, request: Request) -> str:
    """What the API server says against a request; empty when it is accepted."""
    path = request.path(helm.namespace)
    if request.operation == "CONNECT":
        answer = router.post(path, params={"command": "sh", "stdout": "true"})
    elif request.operation == "CREATE":
        answer = router.post(path, params={"dryRun": "All"}, json=request.body)
    else:
        return ""  # nothing was made that it could act on
    return "" if answer.is_success else answer.text
