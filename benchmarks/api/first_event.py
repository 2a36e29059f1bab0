"""The time from a submission to its first event, where the router launches the job itself."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx

from benchmarks.api.router import Bench, spec
from benchmarks.report import percentile


async def measure_first_event(bench: Bench, model: Path, num_jobs: int) -> dict[str, Any]:
    """Seconds from sending a submission to its first event, and to its launch, over SSE."""
    firsts: list[float] = []
    launches: list[float] = []
    async with httpx.AsyncClient(base_url=bench.url, timeout=30.0, trust_env=False) as http:
        for _ in range(num_jobs):
            started = time.perf_counter()
            answer = await http.post("/v1/jobs", json=spec(model))
            assert answer.status_code == 201, answer.text
            job = answer.json()
            path = f"/v1/jobs/{job['job_id']}/events"
            headers = {"Accept": "text/event-stream"}
            async with http.stream("GET", path, headers=headers) as stream:
                async for state in _states(stream):
                    if state == "queued":
                        firsts.append(time.perf_counter() - started)
                    if state == "launching":
                        launches.append(time.perf_counter() - started)
                        break
            await _end(http, job["job_id"])
    return {
        "n": num_jobs,
        "first_event_s_p50": round(percentile(firsts, 0.5), 3),
        "first_event_s_max": round(max(firsts), 3),
        "launching_s_p50": round(percentile(launches, 0.5), 3),
        "launching_s_max": round(max(launches), 3),
    }


async def _states(stream: httpx.Response) -> AsyncIterator[str]:
    async for line in stream.aiter_lines():
        if line.startswith("data: "):
            yield str(json.loads(line[6:])["data"].get("state", ""))


async def _end(http: httpx.AsyncClient, job_id: str) -> None:
    """Cancel a job and wait until its processes have gone."""
    await http.post(f"/v1/jobs/{job_id}/cancel")
    headers = {"Accept": "text/event-stream"}
    async with (
        asyncio.timeout(120),
        http.stream("GET", f"/v1/jobs/{job_id}/events", headers=headers) as stream,
    ):
        async for state in _states(stream):
            if state == "cancelled":
                return
