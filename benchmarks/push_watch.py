"""What a broadcast of full weights takes of memory and files, by the kernel's own counters.

The replica is a process (``python -m benchmarks.push_watch MODEL FOLDER``: prints its address, ends
when its stdin closes), and so is each further rank of the trainer. While weights are sent, none of
them may write a file larger than 1 MiB. Needs Linux.
"""

import asyncio
import contextlib
import os
import resource
import sys
import time
from collections.abc import AsyncGenerator, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.processes import begin_peak, status_bytes
from benchmarks.random_model import save_random_model
from benchmarks.report import goal
from benchmarks.rollout_fleet import TinyTrainer, sidecar
from troupe.algorithms.at_grpo import AtGrpo
from troupe.clients.rollout import RolloutClient
from troupe.runtime.engines.presets import PRESETS
from troupe.runtime.weights.group import BUCKET_BYTES
from troupe.spec import parse_spec
from troupe.spec.policy import FullSpec, LoraSpec, PolicySpec
from troupe_rollout.engines.cpu import CpuEngine
from troupe_trainer.checkpoint.export import Export, export_live
from troupe_trainer.learn.learner import Learner
from troupe_trainer.model.model import PolicyModel
from troupe_trainer.model.ranks.group import LOAD
from troupe_trainer.model.ranks.start import start
from troupe_trainer.publish.broadcast import BroadcastTransport
from troupe_trainer.publish.stream import StreamTransport
from troupe_trainer.publish.transport import Target

LARGEST_FILE = 2**20
START_S = 900
WATCHED: dict[str, Any] = {"hidden": 512, "layers": 8, "heads": 8, "kv_heads": 4, "sharpness": 1.0}
WATCHED_BUCKET = 4 << 20


@dataclass(frozen=True, slots=True)
class Watched:
    """Growth of the memory of each process, at its peak, while one version was sent."""

    size_bytes: int
    senders: tuple[int, ...]
    replica: int
    digests_s: float
    push_s: float

    @property
    def beside(self) -> int:
        """The most that any process took beside the model that it holds."""
        return max(*self.senders, self.replica - self.size_bytes)


@contextlib.asynccontextmanager
async def replica(model: Path, folder: Path) -> AsyncGenerator[tuple[int, str]]:
    """Process id and address of a replica in a process of its own."""
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "benchmarks.push_watch", str(model), str(folder)),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert child.stdin is not None and child.stdout is not None
    try:
        async with asyncio.timeout(START_S):
            yield child.pid, (await child.stdout.readline()).decode().strip()
        child.stdin.close()
        async with asyncio.timeout(60):
            await child.wait()
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()


@contextlib.contextmanager
def no_large_files(*pids: int) -> Generator[None]:
    """No file of these processes may grow beyond ``LARGEST_FILE``: writing raises."""
    limits = {pid: resource.prlimit(pid, resource.RLIMIT_FSIZE) for pid in pids}
    for pid, (_, hard) in limits.items():
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (LARGEST_FILE, hard))
    try:
        yield
    finally:
        for pid, limit in limits.items():
            resource.prlimit(pid, resource.RLIMIT_FSIZE, limit)


@contextlib.contextmanager
def learner(model: Path, num_ranks: int) -> Generator[tuple[PolicyModel, tuple[int, ...]]]:
    """A trainer's model of ``num_ranks`` gloo ranks, and their processes; this one is the first."""
    spec = parse_spec(
        {
            "name": "watched",
            "steps": 1,
            "task": {"name": "plan_path"},
            "workflow": {"order": ["tool", "planner"]},
            "agents": {"tool": {"policy": "p"}, "planner": {"policy": "p"}},
            "policies": {"p": {"model": str(model), "train": {"kind": "full"}}},
        }
    )
    started = start(num_ranks, device="cpu", threads=1)
    try:
        if started.children:
            started.ranks.tell(("", LOAD, (spec.model_dump_json(), "auto")))
        algorithm: Any = AtGrpo(spec.algorithm)
        found = Learner("p", spec, algorithm, device="cpu", ranks=started.ranks)
        yield found.model, (os.getpid(), *(child.pid for child in started.children))
    finally:
        started.end()


async def watch_pushes(
    model: Path, folder: Path, *, num_ranks: int = 1, bucket_bytes: int = BUCKET_BYTES, n: int = 2
) -> list[Watched]:
    """Send ``n`` versions of all weights to a replica; every process is watched meanwhile."""
    transport = BroadcastTransport(
        StreamTransport(),
        host="127.0.0.1",
        device="cpu",
        join_timeout_s=120,
        bucket_bytes=bucket_bytes,
    )
    loop = asyncio.get_running_loop()
    watched: list[Watched] = []
    # gloo's collectives come from one thread, as the trainer's do.
    with ThreadPoolExecutor(1, "learner") as thread, learner(model, num_ranks) as (policy, pids):

        async def on_thread(work: Any) -> Any:
            return await loop.run_in_executor(thread, work)

        async with replica(model, folder) as (pid, address):
            client = RolloutClient(address, retry_for_s=0.0)
            target = Target("r0", client, "1")
            for version in range(n):
                export: Export = await on_thread(
                    lambda v=version: export_live(policy, "p", v, on_thread, job_id="")
                )
                watched.append(await _watch(transport, export, target, pids, pid))
                scores = await client.score("p", version, export.canary.token_ids)
                worst = max(abs(a - b) for a, b in zip(scores, export.canary_logprobs, strict=True))
                assert worst < 1e-3, f"version {version} did not arrive: {worst}"
                await client.activate("p", version)
            await transport.close()
            await client.close()
    return watched


async def _watch(
    transport: BroadcastTransport,
    export: Export,
    target: Target,
    senders: Sequence[int],
    receiver: int,
) -> Watched:
    before = {pid: begin_peak(pid) for pid in (*senders, receiver)}
    began = time.perf_counter()
    with no_large_files(*before):
        async with transport.session(export, [target], timeout_s=600) as send:
            receipt = await send(target)
    assert receipt.tensor_digest == export.manifest.tensor_digest
    grown = {pid: status_bytes(pid, "VmHWM") - before[pid] for pid in before}
    return Watched(
        export.manifest.size_bytes,
        tuple(grown[pid] for pid in senders),
        grown[receiver],
        export.export_s,
        time.perf_counter() - began,
    )


async def memory(folder: Path) -> dict[str, Any]:
    """What a broadcast of full weights takes beside the models: by trainers of one and two ranks.

    Also the bytes of an adapter's parameter as it is sent to engines that compute in bfloat16.
    """
    model = save_random_model(folder / "model-watched", **WATCHED)
    rows = [
        {"ranks": ranks, "bytes": push.size_bytes, "beside_bytes": push.beside}
        for ranks in (1, 2)
        for push in await watch_pushes(
            model, folder / f"watched-{ranks}", num_ranks=ranks, bucket_bytes=WATCHED_BUCKET
        )
    ]
    policy = PolicySpec(model=str(model), train=LoraSpec(rank=32), dtype="bfloat16")
    trainer = TinyTrainer("p", policy, folder / "out-watched")
    sent = trainer.export(0, "bfloat16").manifest.size_bytes
    trained = sum(tensor.numel() for tensor in trainer.model.trainable().values())
    return {
        "rows": rows,
        "largest_file_bytes": LARGEST_FILE,
        "adapter_bytes_a_parameter": round(sent / trained, 2),
        "adapter_mb_of_qwen3_8b_r32": round(
            PRESETS["Qwen/Qwen3-8B"].shape.lora_bytes(32, "bfloat16") / 1e6, 1
        ),
    }


def memory_goals(watched: dict[str, Any]) -> list[dict[str, Any]]:
    """Goal 6 of real size: no whole-model file or buffer in a push, and LoRA in bfloat16.

    That each push arrived is that no process had to write a file above ``LARGEST_FILE``.
    """
    few = 4 * WATCHED_BUCKET
    worst = max(row["beside_bytes"] for row in watched["rows"])
    rate = watched["adapter_bytes_a_parameter"]
    name = "broadcast: bytes beside the models (no whole-model buffer, no file)"
    holds = worst <= few < watched["rows"][0]["bytes"] / 2
    return [
        goal(name, worst, few, holds),
        goal("LoRA in bfloat16: bytes a parameter (with names and shapes)", rate, 2.1, rate <= 2.1),
    ]


async def main(model: str, folder: str) -> None:
    """Serve policy ``p``, whose weights are all trained."""
    engine = CpuEngine()
    await engine.start({"p": PolicySpec(model=model, train=FullSpec())})
    async with sidecar(engine, Path(folder), push_lease_s=600.0) as place:
        print(place.address, flush=True)
        await asyncio.to_thread(sys.stdin.read)
    await engine.stop()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
