"""REST latency while thousands of episodes are played, inside the router or outside.

Run: ``python -m benchmarks.rest_under_play [--quick]``. The platform is that of
`benchmarks.scale_sim`: real router, Valkey, env and collector, simulated replicas. In each
arm another process asks GET /v1/jobs again and again while a step is played. Both arms are measured
in one run and in turns; the ratio of their latencies is what counts, since the machine may be busy.
The last line is one JSON object; exits 0 whatever it shows.
"""

import argparse
import asyncio
import http.client
import json
import os
import statistics
import subprocess
import sys
import time
from typing import Any, Literal

from benchmarks.report import clean_up_on_sigterm, commit, goal, machine, percentile
from benchmarks.scale_sim import Cell, Platform, drive, joined

Players = Literal["inside", "outside"]
ARMS: tuple[Players, ...] = ("inside", "outside")
PATH = "/v1/jobs"
PAUSE_S = 0.02
TIMEOUT_S = 60.0


def ask(address: str) -> list[float]:
    """Seconds of each answer, one after another, until the standard input ends."""
    connection = http.client.HTTPConnection(address, timeout=TIMEOUT_S)
    took: list[float] = []
    os.set_blocking(sys.stdin.fileno(), False)
    while sys.stdin.buffer.raw.read(1) is None:
        began = time.perf_counter()
        connection.request("GET", PATH)
        answer = connection.getresponse()
        answer.read()
        assert answer.status == 200, answer.status
        took.append(time.perf_counter() - began)
        time.sleep(PAUSE_S)
    return took


async def measure(cell: Cell) -> dict[str, Any]:
    """One arm: the latencies while its steps are played."""
    async with joined(cell, None) as (place, job_id):
        asking = _start_asking(place)
        try:
            row = await drive(cell, job_id, place)
        finally:
            output, _ = await asyncio.to_thread(asking.communicate)
    took = json.loads(output)
    return {
        "players": cell.players,
        "n": len(took),
        "p50_ms": round(1000 * statistics.median(took), 2),
        "p99_ms": round(1000 * percentile(took, 0.99), 2),
        "most_ms": round(1000 * max(took), 2),
        "step_s": row["step_s"],
        "peak_in_flight": row["peak_in_flight"],
        "load": round(os.getloadavg()[0], 1),
    }


def _start_asking(place: Platform) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "benchmarks.rest_under_play", "--ask", place.rest_address]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def ratios(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Inside over outside, of the medians over the repetitions."""
    lines: list[dict[str, Any]] = []
    for name in ("p50_ms", "p99_ms"):
        of = {arm: statistics.median(r[name] for r in rows if r["players"] == arm) for arm in ARMS}
        ratio = of["inside"] / of["outside"]
        label = f"GET {PATH}, {name.removesuffix('_ms')}: played inside over outside"
        lines.append(goal(label, round(ratio, 2), 1.0, ratio >= 1.0))
    return lines


def parse() -> argparse.Namespace:
    """The plan."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.rest_under_play")
    parser.add_argument("--episodes", type=int, default=2000, help="in flight at once")
    parser.add_argument("--replicas", type=int, default=4)
    parser.add_argument("--latency-s", type=float, default=2.0, help="mean of a Generate call")
    parser.add_argument("--steps", type=int, default=2)
    parser.add_argument("--repeat", type=int, default=2, help="times that each arm is measured")
    parser.add_argument("--quick", action="store_true", help="300 episodes, one step, once")
    parser.add_argument("--ask", metavar="HOST:PORT", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.quick:
        args.episodes, args.latency_s, args.steps, args.repeat = 300, 0.3, 1, 1
    return args


def main() -> None:
    """Measure both arms in turns and compare."""
    args = parse()
    if args.ask:
        print(json.dumps(ask(args.ask)))
        return
    clean_up_on_sigterm()
    rows: list[dict[str, Any]] = []
    for number in range(args.repeat):
        for players in ARMS if number % 2 == 0 else ARMS[::-1]:
            cell = Cell(args.episodes, args.replicas, args.latency_s, args.steps, players)
            rows.append(asyncio.run(measure(cell)))
            print(json.dumps(rows[-1]), flush=True)
    report = {"commit": commit(), "machine": machine(), "spec": vars(args), "rows": rows}
    print(json.dumps({**report, "goals": ratios(rows)}))


if __name__ == "__main__":
    main()
