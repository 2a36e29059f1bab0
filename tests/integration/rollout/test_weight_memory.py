"""1 GB of weights through a broadcast: the memory that it takes on both sides, and no file."""

import asyncio
import contextlib
import os
import re
import resource
import sys
import time
from collections.abc import AsyncGenerator, Generator
from pathlib import Path

import pytest

from benchmarks.random_model import save_random_model
from benchmarks.rollout_fleet import TinyTrainer
from troupe.clients.rollout import RolloutClient
from troupe.runtime.weights.group import BUCKET_BYTES
from troupe.spec.policy import FullSpec, PolicySpec
from troupe_trainer.publish.broadcast import BroadcastTransport
from troupe_trainer.publish.stream import StreamTransport
from troupe_trainer.publish.transport import Target

pytestmark = pytest.mark.timeout(1800)

FEW = 4 * BUCKET_BYTES
"""Two buckets under way, one that is put in place, and what an allocator keeps."""
LARGEST_FILE = 2**20


@pytest.fixture(scope="module")
def large_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """1 GB in float32, none of its tensors larger than a bucket."""
    folder = tmp_path_factory.mktemp("large") / "model"
    return save_random_model(folder, hidden=1024, layers=23, heads=16, kv_heads=8, sharpness=1.0)


@contextlib.asynccontextmanager
async def replica(model: Path, folder: Path) -> AsyncGenerator[tuple[int, str]]:
    """Process id and address of a replica in a process of its own."""
    script = Path(__file__).with_name("replica_process.py")
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, str(script), str(model), str(folder)),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert child.stdin is not None and child.stdout is not None
    try:
        async with asyncio.timeout(900):
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


def resident(pid: int) -> int:
    """What the process holds now; its peak is counted from here on."""
    Path(f"/proc/{pid}/clear_refs").write_text("5")
    return memory(pid, "VmRSS")


def memory(pid: int, name: str) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    found = re.search(rf"^{name}:\s+(\d+) kB$", status, re.MULTILINE)
    assert found is not None
    return int(found[1]) * 1024


async def test_broadcast_of_1_gb_when_it_is_watched_then_takes_two_buckets_and_no_file(
    large_model: Path, tmp_path: Path
):
    policy = PolicySpec(model=str(large_model), train=FullSpec())
    trainer = TinyTrainer("p", policy, tmp_path / "out")
    transport = BroadcastTransport(
        StreamTransport(), host="127.0.0.1", device="cpu", join_timeout_s=120
    )
    me = os.getpid()
    async with replica(large_model, tmp_path / "in") as (pid, address):
        client = RolloutClient(address, retry_for_s=0.0)
        target = Target("r0", client, "1")
        for version in range(2):
            trainer.learn(version, size=0.001)
            export = trainer.live(version)
            size = export.manifest.size_bytes
            assert size >= 10**9
            before = {p: resident(p) for p in (me, pid)}
            began = time.perf_counter()
            with no_large_files(me, pid):
                async with transport.session(export, [target], timeout_s=600) as send:
                    receipt = await send(target)
            grown = {p: memory(p, "VmHWM") - before[p] for p in before}
            rate = (time.perf_counter() - began) / size * 1e9
            print(
                f"{size} bytes: sender +{grown[me]}, receiver +{grown[pid]} (VmHWM); "
                f"digests {export.export_s / size * 1e9:.2f} s/GB, push {rate:.2f} s/GB"
            )
            assert receipt.tensor_digest == export.manifest.tensor_digest
            assert grown[me] <= FEW
            assert grown[pid] <= size + FEW, "the version that it keeps, and no copy of it"
            scores = await client.score("p", version, export.canary.token_ids)
            assert scores == pytest.approx(export.canary_logprobs, abs=1e-3)
            await client.activate("p", version)
        assert list((tmp_path / "in").rglob("*.safetensors")) == []
        assert not (tmp_path / "out").exists() or list((tmp_path / "out").iterdir()) == []
        await transport.close()
        await client.close()
