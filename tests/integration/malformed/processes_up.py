"""The four services as processes, with what they need to serve, and their memory and logs."""

import asyncio
import json
import os
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from troupe.api.router.v1 import router_pb2 as pb
from troupe.api.router.v1.router_pb2_grpc import RouterServiceServicer
from troupe.errors import NotFoundError

JOB = "malformed-1"
START_S = 400.0


@dataclass
class Assigner(RouterServiceServicer):
    """A router that gives one job to whoever asks, and knows its replicas."""

    spec_json: str
    run_dir: str
    seen: dict[str, pb.Replica] = field(default_factory=dict)

    async def RegisterReplica(self, request: pb.RegisterReplicaRequest, context: Any) -> Any:
        self.seen[request.replica.replica_id] = request.replica
        return pb.RegisterReplicaResponse(assignment=self._assignment(), lease_ttl_s=60)

    async def SendHeartbeat(self, request: pb.SendHeartbeatRequest, context: Any) -> Any:
        self.seen[request.replica.replica_id] = request.replica
        return pb.SendHeartbeatResponse(assignment=self._assignment())

    async def ListReplicas(self, request: pb.ListReplicasRequest, context: Any) -> Any:
        found = [r for r in self.seen.values() if request.kind in (0, r.kind)]
        return pb.ListReplicasResponse(replicas=found)

    async def GetBundle(self, request: pb.GetBundleRequest, context: Any) -> Any:
        raise NotFoundError(f"no bundle {request.digest[:100]}; upload it first")

    def _assignment(self) -> pb.Assignment:
        return pb.Assignment(
            job_id=JOB, spec_json=self.spec_json, policies=["shared"], run_dir=self.run_dir
        )


@dataclass
class Running:
    """One service process. ``log`` is all that it said."""

    name: str
    process: asyncio.subprocess.Process
    path: Path
    address: str = ""

    @property
    def log(self) -> str:
        return self.path.read_text("utf-8", errors="replace")

    def rss_bytes(self) -> int:
        """Memory of the process and its children."""
        own = psutil.Process(self.process.pid)
        return sum(p.memory_info().rss for p in (own, *own.children(recursive=True)))

    async def until(self, event: str) -> None:
        """Wait for a line of the log; its address becomes ``address``."""
        async with asyncio.timeout(START_S):
            while f'"event": "{event}"' not in self.log and f'"event":"{event}"' not in self.log:
                assert self.process.returncode is None, self.log[-3000:]
                await asyncio.sleep(0.05)
        lines = [json.loads(line) for line in self.log.splitlines() if line.startswith("{")]
        listening = next(line for line in lines if line["event"] == "service.listening")
        self.address = "127.0.0.1:" + re.sub(r".*:", "", listening["address"])

    async def stop(self) -> None:
        if self.process.returncode is None:
            self.process.terminate()
            try:
                await asyncio.wait_for(self.process.wait(), 30)
            except TimeoutError:
                self.process.kill()
                await self.process.wait()


async def start(name: str, folder: Path, settings: Mapping[str, str]) -> Running:
    """``python -m services.<name>``, its log in ``folder``."""
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("TROUPE_")}
    prefix = f"TROUPE_{name.upper()}_"
    own = {"GRPC_ADDRESS": "127.0.0.1:0", "GRACE_S": "1", **settings}
    path = folder / f"{name}.log"
    with path.open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", f"troupe_{name}"),
            env={**inherited, "OMP_NUM_THREADS": "1", **{prefix + k: v for k, v in own.items()}},
            stdout=log,
            stderr=log,
        )
    return Running(name, process, path)
