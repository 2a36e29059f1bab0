"""Reads per second of the router's own processor time, so that the clients do not count."""

import asyncio
import time
from collections.abc import Sequence
from typing import Any

from benchmarks.api.router import JOB, Bench, cpu_s

READS = {
    "job": f"/v1/jobs/{JOB}",
    "jobs": "/v1/jobs?limit=10",
    "events": f"/v1/jobs/{JOB}/events?limit=20",
    "steps": f"/v1/jobs/{JOB}/steps?limit=20",
    "quota": "/v1/quota",
    "metrics": f"/v1/jobs/{JOB}/metrics?names=reward_mean&max_points=200",
}


async def measure_reads(bench: Bench, seconds: float) -> dict[str, Any]:
    """Reads over the router's processor time: of each kind, and of all kinds in turn."""
    figures: dict[str, Any] = {}
    for name, paths in [*((n, [p]) for n, p in READS.items()), ("mixed", list(READS.values()))]:
        before, started = cpu_s(bench.router), time.perf_counter()
        counts = await asyncio.gather(*(_ask(bench, paths, seconds) for _ in range(8)))
        wall_s, used_s = time.perf_counter() - started, cpu_s(bench.router) - before
        figures[name] = {
            "per_core_s": round(sum(counts) / used_s, 1),
            "per_s": round(sum(counts) / wall_s, 1),
        }
    return figures


async def _ask(bench: Bench, paths: Sequence[str], seconds: float) -> int:
    """Requests on one kept connection, one after another, for ``seconds``."""
    reader, writer = await asyncio.open_connection("127.0.0.1", bench.port, limit=2**22)
    count, deadline = 0, time.perf_counter() + seconds
    while time.perf_counter() < deadline:
        path = paths[count % len(paths)]
        writer.write(f"GET {path} HTTP/1.1\r\nHost: bench\r\n\r\n".encode())
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200"), head
        size = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
        await reader.readexactly(size)
        count += 1
    writer.close()
    return count
