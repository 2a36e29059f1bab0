"""Game steps per second of the env service over real gRPC, in batches, and its back-pressure.

Run: ``python -m benchmarks.env_throughput [--family plan_path] [--quick]``. The last line is one
JSON object. The service is a process of its own; the CPU time of it and of its sandbox is measured,
so that the rate per core holds on a busy machine. The scripted player's action leads on, random
ones fill the batch.
"""

import argparse
import asyncio
import json
import os
import statistics
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any

from benchmarks.processes import tree_cpu_s
from benchmarks.report import commit, goal, machine, percentile
from troupe.clients import EnvClient
from troupe.errors import OverloadedError
from troupe.tasks.optional import required_policy
from troupe.tasks.registry import load_family
from troupe.tasks.usual import usual_workflow

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


@dataclass(frozen=True)
class Load:
    """What is played and what it may cost. A sandboxed family gets small batches."""

    params: Mapping[str, Any] = field(default_factory=dict[str, Any])
    batch: int = 8
    step_ms: float | None = None
    """CPU of the service for one step, at most. None: not named anywhere, so no goal."""
    state_bytes: int = 16_384


LOADS = {
    "plan_path": Load({"size": 10}, batch=32, step_ms=0.5, state_bytes=4_096),
    "sql": Load(step_ms=4.8, state_bytes=4_096),
    "search": Load(step_ms=1.0, state_bytes=8_192),
    "discovery": Load(step_ms=4.0, state_bytes=4_096),
    "verilog": Load(step_ms=110.0),
    "carry": Load(step_ms=2.0, state_bytes=1_536),
    "tools": Load(),
    "build": Load(state_bytes=2_560),
    "repair": Load(batch=2),
}
"""Goals as written down when the families were designed: a query on six databases, a search, a
formula, a module made gates, a macro action; what has none is measured only."""


@dataclass
class CallerSteps:
    """What one caller saw."""

    num_steps: int = 0
    sizes: list[int] = field(default_factory=list[int])
    call_ms: list[float] = field(default_factory=list[float])


async def play(
    client: EnvClient, name: str, load: Load, seconds: float, caller: int
) -> CallerSteps:
    """Step whole batches until time is up."""
    family = load_family(name, dict(load.params))
    workflow = usual_workflow(family)
    script, drawn = (
        required_policy(family, kind, needed_by="this benchmark", instead="measure another family")
        for kind in ("demonstrate", "random_action")
    )
    rng, played, index = Random(caller), CallerSteps(), caller * 1000
    ends = time.perf_counter() + seconds
    while time.perf_counter() < ends:
        agents = list(workflow.order)
        start = await client.reset(split="train", index=index, observe=agents, timeout_s=60)
        index += 1
        state = start.state
        for number in range(workflow.max_turns * len(agents)):
            agent = agents[number % len(agents)]
            actions = [drawn(state, agent, rng) for _ in range(load.batch - 1)]
            begun = time.perf_counter()
            outcomes = await client.step(
                state=state,
                agent=agent,
                actions=[script(state, agent, rng), *actions],
                observe=agents,
                timeout_s=120,
            )
            played.call_ms.append(1e3 * (time.perf_counter() - begun))
            played.num_steps += len(outcomes)
            played.sizes += [len(outcome.state) for outcome in outcomes]
            state = outcomes[0].state
            if outcomes[0].is_done or time.perf_counter() > ends:
                break
    return played


async def press(address: str) -> dict[str, Any]:
    """Ask for far more than the service takes: how much it refuses, how long the rest waits."""
    async with EnvClient(address, "plan_path", {"size": 10}, retry_for_s=0) as client:
        start = await client.reset(split="train", index=0, observe=[], timeout_s=30)

        async def one() -> float | None:
            began = time.perf_counter()
            try:
                await client.step(
                    state=start.state,
                    agent="planner",
                    actions=["[U]"] * 32,
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


@dataclass
class Rounds:
    """The rounds, one entry each, and everything that their callers saw."""

    per_core: list[float] = field(default_factory=list[float])
    per_wall: list[float] = field(default_factory=list[float])
    seen: list[CallerSteps] = field(default_factory=list[CallerSteps])
    pressed: dict[str, Any] = field(default_factory=dict[str, Any])


async def measure(name: str, seconds: float, rounds: int) -> Rounds:
    """Start the service, play, press."""
    load, found = LOADS[name], Rounds()
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", _SERVER, str(MAX_REQUESTS), stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(60):
            address = f"127.0.0.1:{int(await process.stdout.readline())}"
        async with EnvClient(address, name, load.params, retry_for_s=30) as client:
            await play(client, name, load, 0.5, 99)
            for _ in range(rounds):
                cpu, wall = tree_cpu_s(process.pid), time.perf_counter()
                seen = await asyncio.gather(
                    *(play(client, name, load, seconds, caller) for caller in range(CALLERS))
                )
                num_steps = sum(played.num_steps for played in seen)
                found.per_core.append(num_steps / (tree_cpu_s(process.pid) - cpu))
                found.per_wall.append(num_steps / (time.perf_counter() - wall))
                found.seen += seen
        found.pressed = await press(address)
    finally:
        process.terminate()
        await process.wait()
    return found


def report(name: str, found: Rounds) -> dict[str, Any]:
    """The line that the benchmark ends with."""
    load, pressed = LOADS[name], found.pressed
    median = statistics.median(found.per_core)
    calls = [call for played in found.seen for call in played.call_ms]
    largest = max(size for played in found.seen for size in played.sizes)
    wanted = None if load.step_ms is None else round(1e3 / load.step_ms)
    return {
        "benchmark": "env_throughput",
        "commit": commit(),
        "machine": machine(),
        "load": [round(x, 1) for x in os.getloadavg()],
        "spec": f"{name} {dict(load.params)}, {CALLERS} callers, {load.batch} actions a request, "
        "gRPC",
        "n": len(found.per_core),
        "median": round(median),
        "spread": [round(min(found.per_core)), round(max(found.per_core))],
        "step_ms_of_cpu": round(1e3 / median, 2),
        "steps_per_wall_s_median": round(statistics.median(found.per_wall)),
        "call_ms": {share: round(percentile(calls, float(share)), 1) for share in ("0.5", "0.99")},
        "largest_state_bytes": largest,
        "back_pressure": pressed,
        "goals": [
            *(
                [goal("steps/s per core of the service", round(median), wanted, median >= wanted)]
                if wanted is not None
                else []
            ),
            goal("largest state, bytes", largest, load.state_bytes, largest <= load.state_bytes),
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
    parser.add_argument("--family", choices=LOADS, default="plan_path", help="what is played")
    parser.add_argument("--quick", action="store_true", help="shorter rounds")
    options = parser.parse_args()
    seconds, rounds = (2.0, 3) if options.quick else (10.0, 5)
    print(json.dumps(report(options.family, asyncio.run(measure(options.family, seconds, rounds)))))


if __name__ == "__main__":
    main()
