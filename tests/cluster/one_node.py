"""A cluster of one node: real API server, controllers, scheduler, kubelet and kube-proxy.

The node's containers run on the Docker Engine of scripts/docker_engine.py, its pods on Docker's own
bridge. dnsmasq answers for Services as a cluster's DNS does. Volumes are folders.
"""

import contextlib
import json
import os
import subprocess
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from kube_server import KubeServer
from machine_settings import unmount_below

NODE = "node-1"
PAUSE = "localhost/troupe-pause:1"
DOMAIN = "cluster.local"
_HERE = {
    "matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [NODE]}]
}
_PAUSE_BUILD = """
FROM {base}
ENTRYPOINT ["python", "-c", "import signal; signal.sigwait([signal.SIGTERM, signal.SIGINT])"]
"""


@dataclass
class OneNode(KubeServer):
    """Set ``variables`` to those under which `docker` reaches the engine."""

    variables: Mapping[str, str] = field(default_factory=dict[str, str])
    base_image: str = ""
    redis_image: str = ""
    _is_over: threading.Event = field(default_factory=threading.Event)

    def start(self) -> None:
        """API server, then what acts on it, then the node, which is Ready."""
        shown = "{{(index .IPAM.Config 0).Gateway}} {{(index .IPAM.Config 0).Subnet}}"
        network = self.docker("network", "inspect", "bridge", "--format", shown).split()
        self.address = network[0] if network[0] != "<no" else "172.17.0.1"
        self._make_pause()
        self._make_kubelet_keys()
        super().start()
        kubeconfig = f"--kubeconfig={self.kubeconfig()}"
        quiet = ["--bind-address=127.0.0.1", "--port=0", f"--secure-port={self.free_port()}"]
        self.run("kube-scheduler", kubeconfig, "--leader-elect=false", *quiet)
        self._start_dns()
        self._start_kubelet(kubeconfig)
        self.run(
            "kube-proxy",
            kubeconfig,
            "--proxy-mode=iptables",
            f"--cluster-cidr={network[-1]}",
            f"--hostname-override={NODE}",
            "--conntrack-max-per-core=0",
            f"--healthz-bind-address=127.0.0.1:{self.free_port()}",
            f"--metrics-bind-address=127.0.0.1:{self.free_port()}",
        )
        self._await_node()

    def stop(self) -> None:
        """End the processes, then the containers and mounts that a kubelet leaves."""
        self._is_over.set()
        super().stop()
        mine = self.docker("ps", "-aq", "--filter", "label=io.kubernetes.pod.name").split()
        if mine:
            self.docker("rm", "--force", "--volumes", *mine)
        unmount_below(self.folder / "kubelet")

    def api_options(self) -> list[str]:
        """The kubelet lets in who holds a certificate of the test's own authority."""
        keys = self.folder / "kubelet-keys"
        return [
            f"--advertise-address={self.address}",
            f"--kubelet-client-certificate={keys / 'client.crt'}",
            f"--kubelet-client-key={keys / 'client.key'}",
            "--kubelet-preferred-address-types=InternalIP",
            "--allow-privileged=false",
        ]

    def controller_options(self) -> list[str]:
        """All controllers, and tokens for pods."""
        return [
            f"--service-account-private-key-file={self.folder / 'sa.key'}",
            f"--root-ca-file={self.folder / 'certs' / 'apiserver.crt'}",
            "--bind-address=127.0.0.1",
            "--port=0",
            f"--secure-port={self.free_port()}",
        ]

    def docker(self, *arguments: str, given: str = "") -> str:
        """What a docker command prints."""
        done = subprocess.run(
            ["docker", *arguments],
            env={**os.environ, **self.variables},
            input=given,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-2000:]
        return done.stdout

    def add_volume(self, name: str, size: str) -> None:
        """A folder that a claim without a class may bind, with the owner that its pod asks for."""
        folder = self.folder / "volumes" / name
        folder.mkdir(parents=True)
        body = {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": name},
            "spec": {
                "capacity": {"storage": size},
                "accessModes": ["ReadWriteOnce"],
                "persistentVolumeReclaimPolicy": "Retain",
                "local": {"path": str(folder)},
                "nodeAffinity": {"required": {"nodeSelectorTerms": [_HERE]}},
            },
        }
        with self.http() as http:
            http.post("/api/v1/persistentvolumes", json=body).raise_for_status()

    def get(self, path: str) -> dict[str, Any]:
        """An object or a list of the API."""
        with self.http() as http:
            answer = http.get(path)
        answer.raise_for_status()
        return answer.json()

    def cpu_s(self, pod: Mapping[str, Any]) -> float:
        """Seconds of CPU that the pod has used."""
        return int(self._group(pod, "cpuacct", "cpuacct.usage")) / 1e9

    def memory_mib(self, pod: Mapping[str, Any]) -> float:
        """What the pod holds, without what the kernel would take back from its caches."""
        lines = self._group(pod, "memory", "memory.stat").splitlines()
        found = {name: int(value) for name, value in (line.split() for line in lines)}
        used = int(self._group(pod, "memory", "memory.usage_in_bytes"))
        return (used - found["total_inactive_file"]) / 2**20

    def _group(self, pod: Mapping[str, Any], controller: str, name: str) -> str:
        """A file of the pod's control group."""
        groups = Path("/sys/fs/cgroup") / controller / "kubepods"
        [folder] = groups.glob(f"**/pod{pod['metadata']['uid']}")
        return (folder / name).read_text("ascii").strip()

    def _start_kubelet(self, kubeconfig: str) -> None:
        keys = self.folder / "kubelet-keys"
        configuration = {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "cgroupDriver": "cgroupfs",
            "failSwapOn": False,
            "address": self.address,
            "port": self.free_port(),
            "readOnlyPort": 0,
            "healthzPort": 0,
            "authentication": {
                "anonymous": {"enabled": False},
                "webhook": {"enabled": False},
                "x509": {"clientCAFile": str(keys / "ca.crt")},
            },
            "authorization": {"mode": "AlwaysAllow"},
            "clusterDNS": [self.address],
            "clusterDomain": DOMAIN,
            "resolvConf": "/etc/resolv.conf",
            "enforceNodeAllocatable": [],
            # A disk that is nearly full is the machine's own matter, as are the engine's images.
            "evictionHard": {
                "memory.available": "100Mi",
                "nodefs.available": "1%",
                "imagefs.available": "1%",
                "nodefs.inodesFree": "1%",
            },
            "imageGCHighThresholdPercent": 100,
            "imageGCLowThresholdPercent": 99,
        }
        path = self.folder / "kubelet.yaml"
        path.write_text(json.dumps(configuration), encoding="utf-8")
        self.run(
            "kubelet",
            kubeconfig,
            f"--config={path}",
            f"--root-dir={self.folder / 'kubelet'}",
            f"--cert-dir={self.folder / 'kubelet-certs'}",
            f"--docker-endpoint={self.variables.get('DOCKER_HOST', 'unix:///var/run/docker.sock')}",
            f"--pod-infra-container-image={PAUSE}",
            f"--hostname-override={NODE}",
            f"--node-ip={self.address}",
        )

    def _start_dns(self) -> None:
        hosts = self.folder / "hosts"
        hosts.mkdir()
        self.run(
            "dnsmasq",
            "--keep-in-foreground",
            "--conf-file=/dev/null",
            "--no-hosts",
            "--no-resolv",
            f"--hostsdir={hosts}",
            f"--local=/{DOMAIN}/",
            f"--listen-address={self.address}",
            "--bind-interfaces",
            "--user=root",
            "--pid-file=",
        )
        threading.Thread(target=self._name_services, args=(hosts,), daemon=True).start()

    def _name_services(self, hosts: Path) -> None:
        """What CoreDNS does for a Service with an address; dnsmasq sees a changed file."""
        written = ""
        while not self._is_over.wait(0.5):
            with contextlib.suppress(httpx.HTTPError):
                lines = sorted(
                    f"{item['spec']['clusterIP']} {name}.{space}.svc.{DOMAIN}\n"
                    for item in self.get("/api/v1/services")["items"]
                    for name, space in [(item["metadata"]["name"], item["metadata"]["namespace"])]
                    if item["spec"].get("clusterIP", "None") != "None"
                )
                if written != (written := "".join(lines)):
                    (hosts / "services").write_text(written, encoding="utf-8")

    def _make_pause(self) -> None:
        """What holds a pod's network."""
        text = _PAUSE_BUILD.format(base=self.base_image)
        self.docker("build", "--quiet", "--tag", PAUSE, "-", given=text)

    def _make_kubelet_keys(self) -> None:
        folder = self.folder / "kubelet-keys"
        folder.mkdir()
        for argv in (
            "req -x509 -newkey rsa:2048 -nodes -keyout ca.key -out ca.crt -subj /CN=test -days 2",
            "req -newkey rsa:2048 -nodes -keyout client.key -out client.csr -subj /CN=apiserver",
            "x509 -req -in client.csr -CA ca.crt -CAkey ca.key -CAcreateserial -out client.crt",
        ):
            run = ["openssl", *argv.split()]
            subprocess.run(run, cwd=folder, check=True, capture_output=True, timeout=60)

    def _await_node(self) -> None:
        deadline = time.monotonic() + 120
        seen: Any = None
        while time.monotonic() < deadline:
            for node in self.get("/api/v1/nodes")["items"]:
                seen = node["status"].get("conditions", [])
                if any(c["type"] == "Ready" and c["status"] == "True" for c in seen):
                    return
            time.sleep(0.2)
        log = (self.folder / "kubelet.log").read_text("utf-8", errors="replace")
        raise RuntimeError(f"the node is not Ready: {seen}: {log[-3000:]}")
