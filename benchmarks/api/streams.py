"""Many followers of one job's events: what they cost the router, and that none misses any."""

import asyncio
import time
from typing import Any

from benchmarks.api.router import JOB, Bench, cpu_s
from troupe.runtime.streams.events import EventLog
from troupe.runtime.streams.redis import connect


async def measure_streams(bench: Bench, num_clients: int, num_events: int) -> dict[str, Any]:
    """Memory of the router while clients follow one job, and whether each got every event."""
    redis = await connect(bench.redis_url)
    log = EventLog(redis, JOB, source="bench")
    newest = (await log.read(count=10_000))[-1].id
    idle = bench.router.memory_info().rss
    clients = [asyncio.create_task(_follow(bench, newest, num_events)) for _ in range(num_clients)]
    lazy = [await _open_stream(bench, newest) for _ in range(10)]
    await _until_following(bench, num_clients)
    connected = bench.router.memory_info().rss
    resident: list[int] = []
    started, cpu = time.perf_counter(), cpu_s(bench.router)
    for number in range(num_events):
        data = {"step": number, **{f"series_{i}": number * i for i in range(20)}}
        await log.emit("step.recorded", data)
        await asyncio.sleep(0.02)
        if number % 10 == 9:
            resident.append(bench.router.memory_info().rss)
    async with asyncio.timeout(300):
        counts = await asyncio.gather(*clients)
    wall_s, used_s = time.perf_counter() - started, cpu_s(bench.router) - cpu
    resident.append(bench.router.memory_info().rss)
    for _, writer in lazy:
        writer.close()
    await redis.aclose()
    half = resident[len(resident) // 2]
    return {
        "clients": num_clients,
        "lazy_clients": len(lazy),
        "events": num_events,
        "delivered": sum(counts),
        "complete": all(count == num_events for count in counts),
        "deliveries_per_s": round(sum(counts) / wall_s),
        "deliveries_per_core_s": round(sum(counts) / used_s),
        "idle_mib": round(idle / 2**20, 1),
        "connected_mib": round(connected / 2**20, 1),
        "half_mib": round(half / 2**20, 1),
        "end_mib": round(resident[-1] / 2**20, 1),
        "growth": round((resident[-1] - half) / half, 4),
    }


async def _open_stream(bench: Bench, after: str) -> Any:
    reader, writer = await asyncio.open_connection("127.0.0.1", bench.port, limit=2**20)
    request = (
        f"GET /v1/jobs/{JOB}/events HTTP/1.1\r\nHost: bench\r\n"
        f"Accept: text/event-stream\r\nLast-Event-ID: {after}\r\n\r\n"
    )
    writer.write(request.encode())
    head = await reader.readuntil(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200"), head
    return reader, writer


_following = 0


async def _follow(bench: Bench, after: str, num_events: int) -> int:
    """Events that one client got; it leaves after the last."""
    global _following
    reader, writer = await _open_stream(bench, after)
    _following += 1
    count = 0
    while count < num_events:
        line = await reader.readline()
        if not line:
            break
        count += line.startswith(b"id: ")
    writer.close()
    return count


async def _until_following(bench: Bench, num_clients: int) -> None:
    async with asyncio.timeout(120):
        while _following < num_clients:
            assert bench.router.is_running()
            await asyncio.sleep(0.05)
    await asyncio.sleep(0.5)
