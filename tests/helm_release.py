"""helm on one namespace of a real API server."""

import re
import shutil
import subprocess
from pathlib import Path

from kube_server import ROOT, KubeServer, find_program

CHART = ROOT / "deploy" / "helm" / "troupe"
LISTED = (
    "api/v1:configmaps,services,serviceaccounts,persistentvolumeclaims,pods,secrets",
    "apis/apps/v1:deployments,statefulsets,replicasets",
    "apis/batch/v1:jobs",
    "apis/networking.k8s.io/v1:networkpolicies,ingresses",
    "apis/rbac.authorization.k8s.io/v1:roles,rolebindings",
)


class Helm:
    """helm on one namespace. An old API server gets the part of the chart that it knows."""

    def __init__(self, server: KubeServer, namespace: str, folder: Path) -> None:
        program = find_program("helm")
        assert program is not None
        self._argv = [program, "--kubeconfig", str(server.kubeconfig()), "--namespace", namespace]
        self.server, self.namespace = server, namespace
        self.chart = folder / "troupe"
        shutil.copytree(CHART, self.chart)
        minor = int(re.match(r"v1\.(\d+)", server.version)[1])  # type: ignore[index]
        self.is_old = minor < 29
        self._sets: list[str] = []
        if self.is_old:
            chart = (self.chart / "Chart.yaml").read_text("utf-8")
            without = re.sub(r"^kubeVersion:.*\n", "", chart, flags=re.MULTILINE)
            (self.chart / "Chart.yaml").write_text(without, encoding="utf-8")
            # policy/v1 came with 1.21.
            self._sets = ["podDisruptionBudget.enabled=false"]

    def run(self, *arguments: str, fails: bool = False, timeout_s: float = 120) -> str:
        """What helm says; it must end well, or not, as ``fails`` says."""
        argv = [*self._argv, *arguments]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=timeout_s, check=False)
        assert (done.returncode != 0) is fails, done.stdout + done.stderr
        return done.stdout + done.stderr

    def install(self, verb: str, *sets: str) -> str:
        """install or upgrade, each of ``sets`` being path=JSON."""
        arguments = [verb, "troupe", str(self.chart)]
        for item in [*self._sets, *sets]:
            arguments += ["--set-json", item]
        if self.is_old:
            arguments.append("--disable-openapi-validation")
        return self.run(*arguments)

    def objects(self, *, without: tuple[str, ...] = ()) -> list[str]:
        """kind/name of everything in the namespace that somebody installed."""
        found: list[str] = []
        with self.server.http() as http:
            for listed in LISTED:
                group, _, plurals = listed.partition(":")
                for plural in plurals.split(","):
                    answer = http.get(f"/{group}/namespaces/{self.namespace}/{plural}").json()
                    names = [item["metadata"]["name"] for item in answer["items"]]
                    found += [f"{plural}/{name}" for name in names]
        own = ("serviceaccounts/default", "configmaps/kube-root-ca.crt")
        return [o for o in found if o not in own and not o.startswith(without)]


def token_of(server: KubeServer, namespace: str, account: str) -> str:
    """A token that speaks for the service account for an hour."""
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token"
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    with server.http() as http:
        answer = http.post(path, json={**body, "spec": {"expirationSeconds": 3600}})
    answer.raise_for_status()
    return str(answer.json()["status"]["token"])
