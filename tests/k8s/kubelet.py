"""A kubelet that runs each pod's container as a process of this machine, on a loopback address.

Enough of one for the real services: variables with references, the downward API, restart policies,
exit statuses with the last log lines, graceful deletion. ``hosts`` stands in for the cluster's DNS.
"""

import asyncio
import contextlib
import os
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from troupe.errors import TroupeError
from troupe_router.cluster import names
from troupe_router.cluster.api import POD, ClusterApi, Object


@dataclass
class _Running:
    process: subprocess.Popen[bytes]
    log: Path
    restarts: int = 0
    told: set[int] = field(default_factory=set[int])


class ProcessKubelet:
    """The node of one namespace."""

    def __init__(self, api: ClusterApi, folder: Path, hosts: Mapping[str, str]) -> None:
        self._api = api
        self._folder = folder
        self._hosts = hosts
        self._pods: dict[str, _Running] = {}
        self._addresses: dict[str, str] = {}

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Keep pods running meanwhile; what is left is killed."""
        acting = asyncio.create_task(self._act())
        try:
            yield
        finally:
            acting.cancel()
            await asyncio.gather(acting, return_exceptions=True)
            for pod in self._pods.values():
                pod.process.kill()
                pod.process.wait(timeout=10)

    def logs(self) -> str:
        """The last words of every pod."""
        paths = sorted(self._folder.glob("*.log"))
        return "\n".join(path.read_text("utf-8", errors="replace")[-3000:] for path in paths)

    async def _act(self) -> None:
        while True:
            with contextlib.suppress(TroupeError):
                # The chart's own pods have no images to run here.
                labels = f"{names.MANAGED_BY}={names.LAUNCHER}"
                pods = (await self._api.list(POD, labels=labels))[0]
                for uid in set(self._pods) - {pod["metadata"]["uid"] for pod in pods}:
                    # Deleted by force: its process does not outlive it.
                    gone = self._pods.pop(uid).process
                    gone.kill()
                    await asyncio.to_thread(gone.wait, 10)
                for pod in pods:
                    await self._keep(pod)
            await asyncio.sleep(0.1)

    async def _keep(self, pod: Object) -> None:
        metadata = pod["metadata"]
        running = self._pods.get(metadata["uid"])
        if metadata.get("deletionTimestamp"):
            if running is not None and running.process.poll() is None:
                running.process.terminate()
                try:
                    await asyncio.to_thread(running.process.wait, 15)
                except subprocess.TimeoutExpired:
                    running.process.kill()
                    await asyncio.to_thread(running.process.wait, 10)
            self._pods.pop(metadata["uid"], None)
            await self._api.delete(POD, metadata["name"], uid=metadata["uid"], grace_s=0)
        elif running is None:
            if pod.get("status", {}).get("phase", "Pending") == "Pending":
                self._pods[metadata["uid"]] = self._start(pod)
                await self._tell_running(pod, 0)
        elif (
            code := running.process.poll()
        ) is not None and running.process.pid not in running.told:
            running.told.add(running.process.pid)
            await self._tell_ended(pod, running, code)

    def _start(self, pod: Object) -> _Running:
        container = pod["spec"]["containers"][0]
        log = self._folder / f"{pod['metadata']['name']}-{pod['metadata']['uid'][:4]}.log"
        kept = {k: v for k, v in os.environ.items() if not k.startswith("TROUPE_")}
        with log.open("ab") as sink:
            process = subprocess.Popen(
                [sys.executable, "-m", *container["args"]],
                env={**kept, **self._variables(pod, container), "OMP_NUM_THREADS": "1"},
                stdout=sink,
                stderr=sink,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
        return _Running(process, log)

    def _variables(self, pod: Object, container: Object) -> dict[str, str]:
        address = self._address(pod)
        labels = pod["metadata"]["labels"]
        ordinal = pod["metadata"]["name"].rpartition("-")[2]
        found: dict[str, str] = {}
        for variable in container["env"]:
            value = variable.get("value", "")
            path = variable.get("valueFrom", {}).get("fieldRef", {}).get("fieldPath", "")
            if path == "status.podIP":
                value = address
            elif "pod-index" in path:
                # Servers before 1.28 do not label pods with their index.
                value = labels.get("apps.kubernetes.io/pod-index", ordinal)
            value = re.sub(r"\$\(([A-Z_]+)\)", lambda m: found.get(m[1], m[0]), value)
            for host, stand_in in self._hosts.items():
                value = value.replace(host, stand_in)
            found[variable["name"]] = value.replace("0.0.0.0:", f"{address}:")
        return found

    def _address(self, pod: Object) -> str:
        uid = pod["metadata"]["uid"]
        return self._addresses.setdefault(uid, f"127.0.9.{len(self._addresses) + 1}")

    async def _tell_running(self, pod: Object, restarts: int) -> None:
        state = {"running": {"startedAt": "2026-01-01T00:00:00Z"}}
        await self._tell(pod, "Running", restarts, state)

    async def _tell_ended(self, pod: Object, running: _Running, code: int) -> None:
        lines = running.log.read_text("utf-8", errors="replace").splitlines()
        code = code if code >= 0 else 128 - code
        ending = {"exitCode": code, "reason": "Error" if code else "Completed"}
        ending["message"] = "\n".join(lines[-10:])[-2000:]
        if pod["spec"].get("restartPolicy", "Always") == "Never":
            phase = "Failed" if code else "Succeeded"
            await self._tell(pod, phase, running.restarts, {"terminated": ending})
            return
        again = self._start(pod)
        running.process, running.restarts = again.process, running.restarts + 1
        await self._tell_running(pod, running.restarts)

    async def _tell(self, pod: Object, phase: str, restarts: int, state: Object) -> None:
        container = pod["spec"]["containers"][0]
        status = {
            "phase": phase,
            "podIP": self._address(pod),
            "conditions": [{"type": "Ready", "status": "True"}],
            "containerStatuses": [
                {
                    "name": container["name"],
                    "image": container["image"],
                    "imageID": "",
                    "ready": "running" in state,
                    "restartCount": restarts,
                    "state": state,
                }
            ],
        }
        await self._api.patch(POD, pod["metadata"]["name"], {"status": status}, part="status")
