"""Game steps per second of the env service over real gRPC, in batches, and its back-pressure.

Run: ``python -m benchmarks.env_throughput [--quick]``. The last line is one JSON object. The
service is a process of its own; its CPU time is measured, so that the rate per core holds on a busy
machine.
"""

import argparse
import asyncio
import json
import os
import statistics
import sys
import time
from pathlib import Path
from random import Random
from typing import Any

from benchmarks.report import commit, goal, machine
from troupe.clients import EnvClient
from troupe.errors import OverloadedError
from troupe.tasks.registry import load_family

PARAMS = {"size": 10}
BATCH = 32
CALLERS = 4
MAX_REQUESTS = 8
_SERVER = """
import asyncio, sys
import grpc.aio
from troupe_env.app import EnvApp
from troupe_env.settings import EnvSettings
from troupe.clients.channel import SERVER_OPTIONS
from troupe.runtime.serving.interceptor import ErrorInterceptor
async def main():
    server = grpc.aio.server(interceptors=[ErrorInterceptor()], options=SERVER_OPTIONS)
    EnvApp(EnvSettings(max_requests=int(sys.argv[1]))).register(server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    print(port, flush=True)
    await server.wait_for_termination()
asyncio.run(main())
"""


def cpu_s(pid: int) -> float:
    """CPU time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def play(client: EnvClient, seconds: float, caller: int) -> tuple[int, list[int]]:
    """Step whole batches until time is up: number of steps, sizes of the states."""
    family = load_family("plan_path", PARAMS)
    rng = Random(caller)
    num_steps, sizes, index = 0, [], caller * 1000
    ends = time.perf_counter() + seconds
    while time.perf_counter() < ends:
        start = await client.reset(split="train", index=index, observe=["planner"], timeout_s=30)
        index += 1
        state = start.state
        for _ in range(8):
            actions = [family.random_action(state, "planner", rng) for _ in range(BATCH)]
            outcomes = await client.step(
                state=state, agent="planner", actions=actions, observe=["planner"], timeout_s=30
            )
            num_steps += len(outcomes)
            sizes += [len(outcome.state) for outcome in outcomes]
            state = outcomes[0].state
            if outcomes[0].is_done:
                break
    return num_steps, sizes


async def press(address: str) -> dict[str, Any]:
    """Ask for far more than the service takes: how much it refuses, how long the rest waits."""
    async with EnvClient(address, "plan_path", PARAMS, retry_for_s=0) as client:
        start = await client.reset(split="train", index=0, observe=[], timeout_s=30)

        async def one() -> float | None:
            began = time.perf_counter()
            try:
                await client.step(
                    state=start.state,
                    agent="planner",
                    actions=["[U]"] * BATCH,
                    observe=["planner"],
                    timeout_s=60,
                )
            except OverloadedError:
                return None
            return time.perf_counter() - began

        answers = await asyncio.gather(*(one() for _ in range(32 * MAX_REQUESTS)))
    served = [answer for answer in answers if answer is not None]
    return {
        "asked": len(answers),
        "served": len(served),
        "refused": len(answers) - len(served),
        "slowest_served_s": round(max(served), 2),
    }


async def measure(seconds: float, rounds: int) -> dict[str, Any]:
    """Start the service, play, press."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", _SERVER, str(MAX_REQUESTS), stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(60):
            address = f"127.0.0.1:{int(await process.stdout.readline())}"
        per_core: list[float] = []
        per_wall: list[float] = []
        sizes: list[int] = []
        async with EnvClient(address, "plan_path", PARAMS) as client:
            await play(client, 0.5, 99)
            for _ in range(rounds):
                cpu, wall = cpu_s(process.pid), time.perf_counter()
                played = await asyncio.gather(*(play(client, seconds, c) for c in range(CALLERS)))
                num_steps = sum(n for n, _ in played)
                per_core.append(num_steps / (cpu_s(process.pid) - cpu))
                per_wall.append(num_steps / (time.perf_counter() - wall))
                sizes += [size for _, state_sizes in played for size in state_sizes]
        pressed = await press(address)
    finally:
        process.terminate()
        await process.wait()
    return report(per_core, per_wall, sizes, pressed)


def report(
    per_core: list[float], per_wall: list[float], sizes: list[int], pressed: dict[str, Any]
) -> dict[str, Any]:
    """The line that the benchmark ends with."""
    median = statistics.median(per_core)
    return {
        "benchmark": "env_throughput",
        "commit": commit(),
        "machine": machine(),
        "load": [round(x, 1) for x in os.getloadavg()],
        "spec": f"plan_path {PARAMS}, {CALLERS} callers, {BATCH} actions a request, gRPC",
        "n": len(per_core),
        "median": round(median),
        "spread": [round(min(per_core)), round(max(per_core))],
        "steps_per_wall_s_median": round(statistics.median(per_wall)),
        "back_pressure": pressed,
        "goals": [
            goal("steps/s per core of the service", round(median), 2000, median >= 2000),
            goal("largest state, bytes", max(sizes), 4096, max(sizes) < 4096),
            goal(
                f"refused of {pressed['asked']} at once, room for {MAX_REQUESTS}",
                pressed["refused"],
                1,
                pressed["refused"] >= 1 and pressed["served"] >= MAX_REQUESTS,
            ),
        ],
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="shorter rounds")
    is_quick = parser.parse_args().quick
    print(json.dumps(asyncio.run(measure(2.0 if is_quick else 10.0, 3 if is_quick else 5))))


if __name__ == "__main__":
    main()
