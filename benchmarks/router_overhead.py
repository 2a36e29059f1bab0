"""What routing and the sidecar add to a Generate call, against calling the engine directly.

Run: ``python -m benchmarks.router_overhead [--quick]``. The sidecar runs in a process of its own,
as it is deployed (`benchmarks.overhead_sidecar`). The direct call is the engine in that process;
the routed one goes through the router's fleet here (admission, choice, failing over), gRPC, the
servicer and the same engine. The floor is a bare gRPC call of as many bytes between the same two
processes that waits as long, to a server without interceptors; the plain call also makes and reads
the messages and renders the prompt, and does no more, so what it adds to the floor is the messages'
and what the routed call adds to it is routing, deadlines, errors and counts. With one request at a
time the difference is latency; with 64 in flight it is throughput; ``stages_ms`` says where a
call's time goes.
A fixed-time engine (``--engine fixed``, 5 ms a token) shows the overhead alone, for completions as
short as a move in a game (16 tokens) and longer ones (128). With 1,024 calls of 5 s in flight, the
distributions of routed and bare calls are compared: what a bare call loses there is shown and
subtracted. The last line is one JSON object; exits 0 whatever the numbers are.
"""

import argparse
import asyncio
import contextlib
import json
import os
import platform
import statistics
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.call_stages import FLOOR, SERVED, Instants, stages_ms
from benchmarks.overhead_sidecar import FIXED_TOKEN_S, OverheadSidecar, spawn_sidecar
from benchmarks.overhead_ways import (
    CROWD,
    CallOf,
    floor_call,
    overhead_spec,
    plain_call,
    routed_call,
)
from benchmarks.random_model import save_random_model
from benchmarks.report import commit, goal, percentile
from benchmarks.router_calls import CANDIDATES, IN_FLIGHT, Call, crowd, latencies, throughput
from troupe.runtime.serving.memory import settle_heap

P50_GOAL_S = 0.001
P99_GOAL_S = 0.005
CROWD_TOKENS = 1024
"""200 calls a second, whatever the part of both that a quick run takes."""
QUICK_PART = 8
THROUGHPUT_GOAL = 0.05
CASES = {16: 1, 128: 5}
"""Tokens of a completion, and the part of the calls that is made: the longer ones are fewer."""
WAYS = ("direct", "floor", "plain", "routed")


@dataclass
class Samples:
    """What was measured of each way.

    Seconds of calls alone; requests per second, and processor time of both processes per request,
    with 64 in flight. The processor time does not depend on what else the machine does.
    """

    alone: dict[str, list[float]] = field(default_factory=lambda: {way: [] for way in WAYS})
    rates: dict[str, list[float]] = field(default_factory=lambda: {way: [] for way in WAYS})
    cpu_s: dict[str, list[float]] = field(default_factory=lambda: {way: [] for way in WAYS})


async def measure(engine: str, folder: Path, n: int, rounds: int, part: int = 1) -> dict[str, Any]:
    """Every case, in one pair of processes."""
    model = save_random_model(folder / "model", hidden=96)
    async with contextlib.AsyncExitStack() as stack:
        sidecar = await stack.enter_async_context(spawn_sidecar(engine, model, folder))
        sent = Instants()
        routed = await stack.enter_async_context(routed_call(sidecar, overhead_spec(model), sent))
        plain = await stack.enter_async_context(plain_call(sidecar, sent))
        floor = await stack.enter_async_context(floor_call(sidecar))
        settle_heap()  # as the router does when it is up
        cases: dict[int, dict[str, Any]] = {}
        for num_tokens, part_of_calls in CASES.items():
            calls = {
                "floor": floor(num_tokens),
                "plain": plain(num_tokens),
                "routed": routed(num_tokens),
            }
            count = n // part_of_calls
            samples = await measure_case(sidecar, calls, num_tokens, count, rounds)
            cases[num_tokens] = _summary(samples, num_tokens)
            if engine == "fixed":
                stages = await measure_stages(sidecar, calls, sent, num_tokens, count)
                cases[num_tokens]["stages_ms"] = stages
        crowded = await measure_crowd(routed, floor, rounds, part) if engine == "fixed" else {}
    goals = [line for case in cases.values() for line in case.pop("goals")]
    return {"by_tokens": cases, "crowd": crowded, "goals": [*goals, *crowded.pop("goals", [])]}


async def measure_stages(
    sidecar: OverheadSidecar, calls: dict[str, Call], sent: Instants, num_tokens: int, n: int
) -> dict[str, dict[str, float]]:
    """Medians of where the time of each kind of call goes, one at a time."""
    engine_s = FIXED_TOKEN_S * num_tokens
    stages: dict[str, dict[str, float]] = {}
    for way, names in (("floor", FLOOR), ("plain", SERVED), ("routed", SERVED)):
        await sidecar.direct("instants")
        sent.taken()
        await latencies(sent.around(calls[way]), n)
        theirs = await sidecar.direct("instants")
        stages[way] = stages_ms(names, sent.taken(), theirs, engine_s)
    return stages


async def measure_crowd(routed: CallOf, floor: CallOf, rounds: int, part: int) -> dict[str, Any]:
    """Bare and routed calls with a crowd in flight, one kind after the other and again."""
    in_flight, num_tokens = CROWD // part, CROWD_TOKENS // part
    took_s = FIXED_TOKEN_S * num_tokens
    beyond: dict[str, list[float]] = {"floor": [], "routed": []}
    for _ in range(2 if part == 1 else 1):
        for way, of in (("floor", floor), ("routed", routed)):
            beyond[way] += await crowd(of(num_tokens), in_flight, took_s, rounds)
    at = {
        way: {f"p{round(100 * share)}": percentile(v, share) for share in (0.5, 0.9, 0.99)}
        for way, v in beyond.items()
    }
    over = {name: at["routed"][name] - at["floor"][name] for name in at["floor"]}
    return {
        "in_flight": in_flight,
        "engine_s": took_s,
        "n": len(beyond["routed"]),
        "beyond_engine_s": {
            way: {name: round(value, 5) for name, value in of.items()} for way, of in at.items()
        },
        "goals": [
            goal(
                f"over a bare call at {name} with {in_flight} in flight, s",
                round(over[name], 5),
                limit_s,
                over[name] <= limit_s,
            )
            for name, limit_s in (("p50", P50_GOAL_S), ("p99", P99_GOAL_S))
        ],
    }


async def measure_case(
    sidecar: OverheadSidecar, calls: dict[str, Call], num_tokens: int, n: int, rounds: int
) -> Samples:
    """Alternate the ways, so that a busy machine disturbs them alike."""
    samples = Samples()
    count = 2 * IN_FLIGHT * max(CASES) // num_tokens
    await sidecar.direct("throughput", IN_FLIGHT, num_tokens)
    for call in calls.values():
        await throughput(call, IN_FLIGHT)
    for _ in range(rounds):
        samples.alone["direct"] += await sidecar.direct("latency", n, num_tokens)
        for way, call in calls.items():
            samples.alone[way] += await latencies(call, n)
        for way in WAYS:
            before = await _cpu_s(sidecar)
            if way == "direct":
                samples.rates[way] += await sidecar.direct("throughput", count, num_tokens)
            else:
                samples.rates[way].append(await throughput(calls[way], count))
            samples.cpu_s[way].append((await _cpu_s(sidecar) - before) / count)
    return samples


async def _cpu_s(sidecar: OverheadSidecar) -> float:
    """Processor time that both processes have used."""
    return time.process_time() + (await sidecar.direct("cpu"))[0]


def _summary(samples: Samples, num_tokens: int) -> dict[str, Any]:
    p50 = {way: statistics.median(values) for way, values in samples.alone.items()}
    rate = {way: statistics.median(values) for way, values in samples.rates.items()}
    floor_s = p50["floor"] - p50["direct"]
    over_s = p50["routed"] - p50["floor"]
    lost = 1 - rate["routed"] / rate["direct"]
    return {
        "n": len(samples.alone["direct"]),
        "p50_s": {way: round(value, 5) for way, value in p50.items()},
        "p95_s": {way: round(percentile(v, 0.95), 5) for way, v in samples.alone.items()},
        "requests_per_s": {way: round(value, 1) for way, value in rate.items()},
        "spread": {way: [round(min(v), 1), round(max(v), 1)] for way, v in samples.rates.items()},
        "cpu_s_per_request": {
            way: round(statistics.median(values), 6) for way, values in samples.cpu_s.items()
        },
        "floor": {
            "added_p50_s": round(floor_s, 5),
            "throughput_lost": round(1 - rate["floor"] / rate["direct"], 4),
        },
        "over_floor_p50_s": {
            "messages and rendering": round(p50["plain"] - p50["floor"], 5),
            "routing, deadlines, counts": round(p50["routed"] - p50["plain"], 5),
        },
        "goals": [
            goal(
                f"over a bare call at p50, one at a time, {num_tokens} tokens, s",
                round(over_s, 5),
                P50_GOAL_S,
                over_s <= P50_GOAL_S,
            ),
            goal(
                f"throughput lost with 64 in flight, {num_tokens} tokens",
                round(lost, 4),
                THROUGHPUT_GOAL,
                lost <= THROUGHPUT_GOAL,
            ),
        ],
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, prog="python -m benchmarks.router_overhead"
    )
    parser.add_argument("--engine", choices=["fixed", "cpu", "sglang"], default="fixed")
    parser.add_argument("--n", type=int, default=40)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="two rounds of 20, a crowd of 128")
    args = parser.parse_args()
    if args.quick:
        args.n, args.rounds = 20, 2
    with tempfile.TemporaryDirectory(prefix="troupe-router-") as scratch:
        figures = asyncio.run(
            measure(
                args.engine, Path(scratch), args.n, args.rounds, QUICK_PART if args.quick else 1
            )
        )
    head = {
        "benchmark": "router_overhead",
        "commit": commit(),
        "machine": f"{os.cpu_count()} x {platform.machine()}",
        "load": os.getloadavg()[0],
        "engine": args.engine,
        "candidates": CANDIDATES,
        "in_flight": IN_FLIGHT,
    }
    print(json.dumps({**head, **figures}))


if __name__ == "__main__":
    main()
