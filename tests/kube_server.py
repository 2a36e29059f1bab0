"""A real kube-apiserver with etcd and kube-controller-manager, as processes of this machine.

No node: what a kubelet would say is said by kube_world, and everything listens on loopback.
tests/cluster adds a node, and says so by other options.
"""

import json
import shutil
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import httpx
from kubernetes.aio import client

ROOT = Path(__file__).parents[1]
TOKEN = "administrator"
PROGRAMS = ("etcd", "kube-apiserver", "kube-controller-manager")
CONTROLLERS = (
    "garbagecollector,job,statefulset,resourcequota,namespace,serviceaccount,deployment,replicaset,"
    "endpoint,pvc-protection"
)


def find_program(name: str) -> str | None:
    """The program that `make test-k8s` fetched, or the machine's own."""
    own = ROOT / ".tools" / name
    return str(own) if own.is_file() else shutil.which(name)


@dataclass
class KubeServer:
    """``url`` answers from start to stop; ``version`` is the API server's."""

    folder: Path
    free_port: Callable[[], int]
    url: str = ""
    version: str = ""
    address: str = "127.0.0.1"
    _processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def start(self) -> None:
        """Bring it up; raises RuntimeError with the API server's last words."""
        etcd_port, peer_port, port = (self.free_port() for _ in range(3))
        etcd = f"http://127.0.0.1:{etcd_port}"
        keys = self._keys()
        tokens = self.folder / "tokens.csv"
        tokens.write_text(f'{TOKEN},admin,admin,"system:masters"\n', encoding="utf-8")
        self.run(
            "etcd",
            f"--data-dir={self.folder / 'etcd'}",
            f"--listen-client-urls={etcd}",
            f"--advertise-client-urls={etcd}",
            f"--listen-peer-urls=http://127.0.0.1:{peer_port}",
            "--unsafe-no-fsync",
        )
        self.run(
            "kube-apiserver",
            f"--etcd-servers={etcd}",
            f"--cert-dir={self.folder / 'certs'}",
            f"--secure-port={port}",
            f"--bind-address={self.address}",
            f"--service-account-key-file={keys}",
            f"--service-account-signing-key-file={keys}",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--token-auth-file={tokens}",
            "--authorization-mode=RBAC",
            "--service-cluster-ip-range=10.96.0.0/16",
            *self.api_options(),
        )
        self.url = f"https://{self.address}:{port}"
        self._await_ready()
        self.run(
            "kube-controller-manager",
            f"--kubeconfig={self.kubeconfig()}",
            *self.controller_options(),
            "--leader-elect=false",
            "--kube-api-qps=300",
            "--kube-api-burst=600",
            "--resource-quota-sync-period=2s",
        )

    def api_options(self) -> list[str]:
        """Of the API server, beyond what each has."""
        # Nothing runs here, so nobody needs a service account's token in a pod.
        return ["--disable-admission-plugins=ServiceAccount"]

    def controller_options(self) -> list[str]:
        """Of the controller manager, beyond what each has."""
        return [f"--controllers={CONTROLLERS}"]

    def stop(self) -> None:
        """End the processes, the last one first."""
        for process in reversed(self._processes):
            process.terminate()
        for process in reversed(self._processes):
            try:
                process.wait(timeout=20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(timeout=10)

    def configuration(self, token: str = TOKEN) -> client.Configuration:
        """For a client that has ``token``."""
        made = client.Configuration(host=self.url)
        made.verify_ssl = False
        made.api_key["BearerToken"] = f"Bearer {token}"
        return made

    def kubeconfig(self) -> Path:
        """A kubeconfig of the administrator, for helm and kubectl."""
        path = self.folder / "kubeconfig"
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [
                {"name": "c", "cluster": {"server": self.url, "insecure-skip-tls-verify": True}}
            ],
            "users": [{"name": "u", "user": {"token": TOKEN}}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "x",
        }
        path.write_text(json.dumps(document), encoding="utf-8")
        path.chmod(0o600)
        return path

    def http(self, token: str = TOKEN) -> httpx.Client:
        """A plain client, for what the launcher's own does not do."""
        headers = {"Authorization": f"Bearer {token}"}
        return httpx.Client(base_url=self.url, headers=headers, verify=False, timeout=20.0)

    def run(self, program: str, *arguments: str) -> None:
        """Start a program that stop() ends; its log is in the folder."""
        path = find_program(program)
        assert path is not None
        with (self.folder / f"{program}.log").open("wb") as log:
            argv: Sequence[str] = [path, *arguments]
            self._processes.append(subprocess.Popen(argv, stdout=log, stderr=log))

    def _keys(self) -> Path:
        path = self.folder / "sa.key"
        argv = ["openssl", "genrsa", "-out", str(path), "2048"]
        subprocess.run(argv, check=True, capture_output=True, timeout=60)
        return path

    def _await_ready(self) -> None:
        deadline = time.monotonic() + 90
        with self.http() as http:
            while time.monotonic() < deadline:
                try:
                    if http.get("/readyz").status_code == 200:
                        self.version = http.get("/version").json()["gitVersion"]
                        return
                except httpx.HTTPError:
                    pass
                if self._processes[-1].poll() is not None:
                    break
                time.sleep(0.1)
        log = (self.folder / "kube-apiserver.log").read_text("utf-8", errors="replace")
        raise RuntimeError(f"kube-apiserver did not become ready: {log[-2000:]}")
