"""Step time, and processor time per episode, as episodes in flight and replicas grow.

Run: ``python -m benchmarks.scale_sim [--quick] [--profile FOLDER]``; with ``--tokens 1024
--candidates 8 --play 1,2`` long answers, and the tokens that one core of each process takes a
second while so many `python -m troupe_router.play` play the job. For each cell: the real router
process (REST, membership, episode workers, fleet routing, ledger, recorder), a real Valkey, a real
env process, replicas that only take their time (`benchmarks.scale_engines`: recorded ones) and,
in this process, the trainer's real collector. No weights are learnt or pushed. Processor time is
the kernel's, process by process; a first step warms up. The last line is one JSON object; exits 0
whatever it shows.
"""

import argparse
import asyncio
import contextlib
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from redis.asyncio import Redis

from benchmarks.report import clean_up_on_sigterm, commit, goal, machine
from benchmarks.scale_engines import COMPLETION_TOKENS, LATENCIES, POLICY, VOCABULARY
from benchmarks.token_floor import floor, token_goals
from troupe.api.router.v1 import router_pb2 as router
from troupe.clients import RolloutClient
from troupe.clients.rest import RestClient
from troupe.clients.router import RouterClient
from troupe.ids import train_round
from troupe.runtime.serving.membership import Membership
from troupe.runtime.streams import keys
from troupe.runtime.streams.embedded import server_argv, url
from troupe.runtime.streams.ledger import StepLedger
from troupe.runtime.streams.redis import connect
from troupe_trainer.control import Control
from troupe_trainer.learn.collector import Collector

TICK_S = 1.0 / os.sysconf("SC_CLK_TCK")
FLAT = 1.5
"""The largest cell may take this many times the processor time an episode of the middle one."""
START_S = 120.0
IDLE_S = 3.0
STEP_S = 1800.0
EPISODES = (100, 1_000, 10_000)
REPLICAS = (4, 16, 64)


@dataclass(frozen=True)
class Cell:
    """One place of the table: all episodes of a step are in flight at once.

    ``players`` is the router's setting; "outside": ``num_play`` play processes beside it.
    """

    episodes: int
    replicas: int
    latency_s: float
    steps: int
    players: str = "inside"
    num_play: int = 1
    candidates: int = 4
    tokens: int = COMPLETION_TOKENS

    def spec(self) -> dict[str, Any]:
        """Two agents, two turns: up to four Generate and five env calls an episode."""
        waits = dict.fromkeys(("generate_timeout_s", "env_timeout_s"), STEP_S)
        return {
            "name": f"scale-{self.episodes}-{self.replicas}",
            "steps": self.steps,
            "tasks_per_step": self.episodes,
            "task": {"name": "plan_path", "params": {"size": 6, "max_actions": 4}},
            "workflow": {"order": ["tool", "planner"], "max_turns": 2},
            "agents": {"tool": {"policy": POLICY}, "planner": {"policy": POLICY}},
            "policies": {POLICY: {"model": "simulated/model"}},
            "algorithm": {"kind": "at_grpo", "group_size": self.candidates},
            "sampling": {"max_new_tokens": self.tokens},
            "eval": {"num_tasks": 0},
            "limits": {
                **waits,
                "episode_timeout_s": STEP_S,
                "step_timeout_s": 2 * STEP_S,
                "phase_deadline_s": STEP_S,
                "episodes_in_flight": self.episodes,
            },
        }


@dataclass
class Processes:
    """What runs beside the collector, by name."""

    running: dict[str, subprocess.Popen[bytes]] = field(
        default_factory=dict[str, "subprocess.Popen[bytes]"]
    )

    def start(self, name: str, argv: list[str], folder: Path, env: Mapping[str, str]) -> None:
        """One process; its output goes to a file of its name."""
        with (folder / f"{name}.log").open("w") as log:
            self.running[name] = subprocess.Popen(
                argv, stdout=log, stderr=log, env={**os.environ, "OMP_NUM_THREADS": "1", **env}
            )

    def cpu_s(self) -> dict[str, float]:
        """Processor time of each so far, and of this one."""
        seconds = {name: _cpu_s(process.pid) for name, process in self.running.items()}
        return {**seconds, "collector": time.process_time()}

    def check(self, folder: Path) -> None:
        """Raise when one has ended."""
        for name, process in self.running.items():
            if process.poll() is not None:
                raise SystemExit(f"{name} ended: {(folder / f'{name}.log').read_text()[-2000:]}")

    def stop(self) -> None:
        """End all, the router first, Valkey last."""
        for process in reversed(self.running.values()):
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(20)


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    return (int(fields[11]) + int(fields[12])) * TICK_S


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for listener in sockets:
            listener.bind(("127.0.0.1", 0))
        return [listener.getsockname()[1] for listener in sockets]


@dataclass
class Platform:
    """The processes of one cell and how to reach them."""

    processes: Processes
    redis: Redis
    rest: RestClient
    rest_address: str
    router: RouterClient
    folder: Path


@contextlib.asynccontextmanager
async def platform(cell: Cell, folder: Path, profile: Path | None) -> AsyncGenerator[Platform]:
    """Everything up until the block ends."""
    redis_port, rest_port, grpc_port = _free_ports(3)
    processes = Processes()
    async with contextlib.AsyncExitStack() as stack:
        stack.callback(processes.stop)
        processes.start("valkey", server_argv(redis_port, folder, fsync="everysec"), folder, {})
        address = f"127.0.0.1:{grpc_port}"
        settings = {
            "REDIS_URL": url(redis_port),
            "REST_ADDRESS": f"127.0.0.1:{rest_port}",
            "GRPC_ADDRESS": address,
            "RUNS_DIR": str(folder / "runs"),
            "LAUNCHER": "none",
            "PLAYERS": cell.players,
            "GENERATE_CALLS": "16384",
            "LOG_LEVEL": "warning",
            "REPLICA_TTL_S": "60",
            "LEASE_TTL_S": "60",
        }
        python = [sys.executable, "-m"]
        prefix = [*python, "cProfile", "-o", str(profile), "-m"] if profile else python
        redis = await connect(url(redis_port), connect_for_s=30.0)
        stack.push_async_callback(redis.aclose)
        command = [*prefix, "troupe_router"]
        names = {f"TROUPE_ROUTER_{key}": value for key, value in settings.items()}
        processes.start("router", command, folder, names)
        if cell.players == "outside":
            play = {"REDIS_URL": url(redis_port), "GENERATE_CALLS": "16384", "LOG_LEVEL": "warning"}
            names = {f"TROUPE_PLAY_{key}": value for key, value in play.items()}
            for number in range(cell.num_play):
                name = f"play-{number}" if cell.num_play > 1 else "play"
                processes.start(name, [*python, "troupe_router.play"], folder, names)
        env = {"ROUTER": address, "MAX_REQUESTS": "16384"}
        env = {f"TROUPE_ENV_{key}": value for key, value in {**env, "LOG_LEVEL": "warning"}.items()}
        processes.start("env", [*python, "troupe_env"], folder, env)
        simulate = ["simulate", "--router", address, "--replicas", str(cell.replicas)]
        command = [*python, "benchmarks.scale_engines", *simulate, "--mean-s", str(cell.latency_s)]
        processes.start("engines", command, folder, {})
        rest = stack.enter_context(RestClient(f"http://127.0.0.1:{rest_port}"))
        async with asyncio.timeout(START_S):
            while not await asyncio.to_thread(rest.is_up):
                processes.check(folder)
                await asyncio.sleep(0.2)
        client = await stack.enter_async_context(RouterClient(address))
        yield Platform(processes, redis, rest, f"127.0.0.1:{rest_port}", client, folder)


async def measure(cell: Cell, profile: Path | None) -> dict[str, Any]:
    """One cell, on a platform of its own."""
    async with joined(cell, profile) as (place, job_id):
        return await drive(cell, job_id, place)


@contextlib.asynccontextmanager
async def joined(cell: Cell, profile: Path | None) -> AsyncGenerator[tuple[Platform, str]]:
    """A platform with the cell's job, whose trainer this process is."""
    with tempfile.TemporaryDirectory(prefix="troupe-scale-") as scratch:
        async with platform(cell, Path(scratch), profile) as place:
            job = await asyncio.to_thread(place.rest.submit, cell.spec())
            replica = router.Replica(
                replica_id="collector", kind=router.REPLICA_KIND_TRAINER, address="127.0.0.1:1"
            )
            member = Membership(place.router, lambda: replica)
            async with asyncio.timeout(START_S):
                await member.join()
            beating = asyncio.create_task(member.run())
            try:
                yield place, job.job_id
            finally:
                beating.cancel()
                await asyncio.gather(beating, return_exceptions=True)


async def drive(cell: Cell, job_id: str, place: Platform) -> dict[str, Any]:
    """Play and collect the cell's steps; its row."""
    ledger = StepLedger(place.redis, job_id)
    control = Control()
    collector = Collector(
        place.redis, job_id, {POLICY: VOCABULARY}, first_step=0, timeout_s=STEP_S, control=control
    )
    engines = await _engines(cell, job_id, place)
    before = place.processes.cpu_s()
    await asyncio.sleep(IDLE_S)
    idle = {k: (v - before[k]) / IDLE_S for k, v in place.processes.cpu_s().items()}
    steps: list[dict[str, Any]] = []
    try:
        for step in range(cell.steps):
            steps.append(await _step(cell, step, job_id, ledger, collector, engines, place))
    finally:
        await asyncio.gather(*(engine.close() for engine in engines))
    return _row(cell, steps, idle)


async def _engines(cell: Cell, job_id: str, place: Platform) -> list[RolloutClient]:
    """A connection to each replica, once the router knows them all."""
    async with asyncio.timeout(START_S):
        while True:
            place.processes.check(place.folder)
            replicas = await place.router.list_replicas(job_id, router.REPLICA_KIND_ROLLOUT)
            if len(replicas) == cell.replicas:
                return [RolloutClient(replica.address) for replica in replicas]
            await asyncio.sleep(0.2)


async def _step(
    cell: Cell,
    step: int,
    job_id: str,
    ledger: StepLedger,
    collector: Collector,
    engines: list[RolloutClient],
    place: Platform,
) -> dict[str, Any]:
    """Play and collect one step; what it took."""
    before, began = place.processes.cpu_s(), time.perf_counter()
    await asyncio.gather(*(engine.activate(POLICY, step) for engine in engines))
    await ledger.commit_version(POLICY, step, "simulated")
    watching = asyncio.create_task(_peak(place.redis, job_id))
    try:
        batch = await collector.collect(step)
    finally:
        watching.cancel()
        peak = (await asyncio.gather(watching, return_exceptions=True))[0]
    collected_s = time.perf_counter() - began
    async with asyncio.timeout(STEP_S):
        while not (state := await ledger.round(train_round(step))) or not state.is_recorded:
            place.processes.check(place.folder)
            await ledger.wait_change(1.0)
    await collector.ack_below(step + 1)
    used = {k: v - before[k] for k, v in place.processes.cpu_s().items()}
    groups = len(batch.groups[POLICY])
    num_tokens = sum(len(c.token_ids) for g in batch.groups[POLICY] for c in g.candidates)
    if batch.dropped or state.num_dropped or not groups:
        raise SystemExit(f"{cell}: dropped {dict(batch.dropped)}, {state.num_dropped} tickets")
    return {
        "collected_s": collected_s,
        "step_s": time.perf_counter() - began,
        "cpu_s": used,
        "peak": peak,
        "groups": groups,
        "num_tokens": num_tokens,
    }


async def _peak(redis: Redis, job_id: str) -> int:
    """Tickets that are being played, at most, until cancelled."""
    largest = 0
    try:
        while True:
            with contextlib.suppress(Exception):  # the stream may not be there yet
                summary: Any = await redis.xpending(keys.tickets(job_id), keys.WORKERS_GROUP)
                largest = max(largest, int(summary["pending"]))
            await asyncio.sleep(0.1)
    except asyncio.CancelledError:
        return largest


def _row(cell: Cell, steps: list[dict[str, Any]], idle: Mapping[str, float]) -> dict[str, Any]:
    steps = steps[1:] or steps
    per_ms = {
        name: [1000 * step["cpu_s"][name] / cell.episodes for step in steps]
        for name in steps[0]["cpu_s"]
    }
    seconds = [step["step_s"] for step in steps]
    busy = per_ms["router"]
    # What an idle router spends anyway says nothing of an episode.
    net = [
        max(0.0, busy_ms - 1000 * idle["router"] * step_s / cell.episodes)
        for busy_ms, step_s in zip(busy, seconds, strict=True)
    ]
    return {
        "episodes": cell.episodes,
        "replicas": cell.replicas,
        "n": len(steps),
        "peak_in_flight": max(step["peak"] for step in steps),
        "groups": steps[0]["groups"],
        "play_processes": cell.num_play if cell.players == "outside" else 0,
        "tokens": steps[0]["num_tokens"],
        "tokens_per_s": round(statistics.median(s["num_tokens"] / s["step_s"] for s in steps)),
        "us_per_token": _us_per_token(steps, idle),
        "step_s": round(statistics.median(seconds), 2),
        "collected_s": round(statistics.median(s["collected_s"] for s in steps), 2),
        "spread_s": [round(min(seconds), 2), round(max(seconds), 2)],
        "cpu_ms_per_episode": {k: round(statistics.median(v), 3) for k, v in per_ms.items()},
        "router_net_ms_per_episode": round(statistics.median(net), 3),
        "idle_cpu": {k: round(v, 3) for k, v in idle.items()},
    }


def _us_per_token(steps: list[dict[str, Any]], idle: Mapping[str, float]) -> dict[str, float]:
    """Processor time of each process a sampled token, of several play processes together; without
    what it takes in the same time when nothing is played."""
    us: dict[str, float] = {}
    for name in steps[0]["cpu_s"]:
        part = "play" if name.startswith("play") else name
        each = [
            1e6 * (step["cpu_s"][name] - idle[name] * step["step_s"]) / step["num_tokens"]
            for step in steps
        ]
        us[part] = round(us.get(part, 0.0) + max(0.0, statistics.median(each)), 4)
    return us


def goals(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Ten times the episodes, or sixteen times the replicas, cost no more an episode."""
    by = {(row["episodes"], row["replicas"]): row for row in rows}
    lines: list[dict[str, Any]] = []
    many, fewest = max(row["episodes"] for row in rows), min(row["replicas"] for row in rows)
    most = max(row["replicas"] for row in rows)
    pairs = [((many, most), (many, fewest), f"{many} episodes, {most} over {fewest} replicas")]
    if (many // 10, most) in by:
        pairs.append(((many, most), (many // 10, most), f"{many} over {many // 10} episodes"))
    for large, small, name in pairs:
        if large == small or large not in by or small not in by:
            continue
        for process in ("router", "collector"):
            ratio = (
                by[large]["cpu_ms_per_episode"][process] / by[small]["cpu_ms_per_episode"][process]
            )
            label = f"{process}, processor time an episode: {name}"
            lines.append(goal(label, round(ratio, 2), FLAT, ratio <= FLAT))
    return lines


def parse() -> argparse.Namespace:
    """The plan."""
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m benchmarks.scale_sim")
    parser.add_argument("--episodes", default=",".join(map(str, EPISODES)))
    parser.add_argument("--replicas", default=",".join(map(str, REPLICAS)))
    parser.add_argument("--latency-s", type=float, default=6.0, help="mean of a Generate call")
    parser.add_argument("--steps", type=int, default=2)
    parser.add_argument("--tokens", type=int, default=COMPLETION_TOKENS, help="of an answer")
    parser.add_argument("--candidates", type=int, default=4, help="answers to a prompt")
    parser.add_argument("--play", default="", help="numbers of play processes: 1,2")
    parser.add_argument("--profile", type=Path, help="folder for cProfile files of the router")
    parser.add_argument("--quick", action="store_true", help="100 and 300 episodes, 4 and 16")
    args = parser.parse_args()
    if args.quick:
        args.episodes, args.replicas, args.latency_s, args.steps = "100,300", "4,16", 0.3, 1
    return args


def cells(episodes: int, replicas: int, args: argparse.Namespace) -> list[Cell]:
    """One that is played in the router, or one for each number of play processes."""
    plain = Cell(episodes, replicas, args.latency_s, args.steps)
    plain = replace(plain, candidates=args.candidates, tokens=args.tokens)
    counts = [int(count) for count in args.play.split(",") if count]
    return [replace(plain, players="outside", num_play=n) for n in counts] or [plain]


def main() -> None:
    """Measure every cell and compare."""
    args = parse()
    clean_up_on_sigterm()
    rows: list[dict[str, Any]] = []
    for episodes in map(int, args.episodes.split(",")):
        for replicas in map(int, args.replicas.split(",")):
            for cell in cells(episodes, replicas, args):
                profile = args.profile and args.profile.absolute() / f"{episodes}-{replicas}.prof"
                rows.append(asyncio.run(measure(cell, profile)))
                print(json.dumps(rows[-1]), flush=True)
    result = {
        "benchmark": "scale_sim",
        "commit": commit(),
        "machine": machine(),
        "load": os.getloadavg()[0],
        "spec": {
            "episodes": args.episodes,
            "replicas": args.replicas,
            "job": cell.spec(),
        },
        "latencies": json.loads(LATENCIES.read_text())["from"],
        "latency_s": args.latency_s,
        "n": args.steps,
        "rows": rows,
        **({"floor": floor(rows[-1])} if args.play else {}),
        "goals": token_goals(rows) if args.play else goals(rows),
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
