"""What a sampled token costs each process between an engine's answer and the optimizer, and Redis.

Run: ``python -m benchmarks.token_path [--quick]``. K long answers a call, by the real parts: a
sidecar of the `sglang` engine before a stand-in that answers as SGLang does (`token_engines`), its
gRPC, what a player does with an answer, a real Valkey, the trainer's collector and the recorder.
Processor time is the kernel's, of one core; nothing waits for a model. The last line is one JSON
object; exits 0 whatever it shows.
"""

import argparse
import asyncio
import contextlib
import itertools
import json
import os
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from redis.asyncio import Redis

from benchmarks.report import clean_up_on_sigterm, commit, goal, machine
from benchmarks.token_engines import POLICY, VOCABULARY, answer, save_model
from troupe.api.records.v1 import records_pb2 as pb
from troupe.candidates import GenerateRequest, Generation
from troupe.clients import RolloutClient
from troupe.episodes.branch import Draw
from troupe.episodes.groups import Ending, episode_record, for_trainer, groups_by_observation
from troupe.episodes.ports import Outcome
from troupe.ids import train_round
from troupe.runtime.streams.embedded import server_argv, url
from troupe.runtime.streams.ledger import StepLedger
from troupe.runtime.streams.redis import connect
from troupe.spec.job import SamplingSpec
from troupe.tasks.family import Message
from troupe_router.run.episodes_file import episode_lines
from troupe_router.run.round_metrics import play_metrics
from troupe_trainer.control import Control
from troupe_trainer.learn.collector import Collector

JOB = "j"
START_S = 180.0
CALL_S = 120.0
TICK_S = 1.0 / os.sysconf("SC_CLK_TCK")
AT_ONCE = 4
TURNS = 2
JOB_RATE = 5e6
SIDECAR_RATE = 1e6
REDIS_BYTES = 12.0


@dataclass(frozen=True)
class Size:
    """K candidates of T tokens in each of ``calls`` calls; two turns make an episode."""

    candidates: int
    tokens: int
    calls: int

    @property
    def num_tokens(self) -> int:
        """Tokens of all calls."""
        return self.candidates * self.tokens * self.calls


@dataclass
class Clock:
    """Processor time of parts, by name; of this process unless another's number is given."""

    seconds: dict[str, float]

    @contextlib.contextmanager
    def of(self, name: str, pid: int | None = None) -> Generator[None]:
        """Add what the block takes."""
        before = _cpu_s(pid)
        yield
        self.seconds[name] = self.seconds.get(name, 0.0) + _cpu_s(pid) - before


def _cpu_s(pid: int | None) -> float:
    if pid is None:
        return time.process_time()
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    return (int(fields[11]) + int(fields[12])) * TICK_S


@contextlib.asynccontextmanager
async def child(*argv: str, says: bool = False) -> AsyncGenerator[tuple[int, str]]:
    """A process until the block ends: its number, and the first thing that it ``says`` as JSON."""
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*argv, stdin=pipe, stdout=pipe)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        line = b""
        async with asyncio.timeout(START_S):
            while says and not line.startswith(b'"'):  # the services' log comes between
                line = await process.stdout.readline()
                assert line, "it ended; its error is above"
        yield process.pid, json.loads(line) if says else ""
    finally:
        process.stdin.close()
        if not says:
            process.terminate()
        try:
            async with asyncio.timeout(60):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()


def interpreter(folder: Path) -> Path:
    """What the engine runs in the place of SGLang's Python."""
    python = folder / "python"
    module = f"{sys.executable} -m benchmarks.token_engines --answer {folder / 'answer.json'}"
    python.write_text(f'#!/bin/sh\ncd {Path.cwd()}\nif [ "$1" = "-m" ]; then shift 2; fi\n')
    with python.open("a") as script:
        script.write(f'exec {module} "$@"\n')
    python.chmod(0o755)
    return python


async def generations(folder: Path, size: Size, clock: Clock) -> list[Generation]:
    """Ask the sidecar; its time and that of the caller's end."""
    argv = [sys.executable, "-m", "benchmarks.token_engines", "--sidecar", str(folder)]
    argv += ["--python", str(interpreter(folder))]
    async with child(*argv, says=True) as (pid, address):
        client = RolloutClient(address)
        sampling = SamplingSpec(max_new_tokens=size.tokens)
        messages = [Message("user", "Write a page of documentation. " * 40)]
        room = asyncio.Semaphore(AT_ONCE)

        async def one(seed: int) -> Generation:
            request = GenerateRequest(POLICY, 0, messages, size.candidates, sampling, seed)
            async with room:
                return await client.generate(request, timeout_s=CALL_S)

        try:
            await asyncio.gather(*map(one, range(AT_ONCE)))  # warm
            with clock.of("sidecar", pid), clock.of("player: answers"):
                return await asyncio.gather(*map(one, range(size.calls)))
        finally:
            await client.close()


def played(ticket: pb.Ticket, answers: list[Generation]) -> tuple[list[pb.Group], pb.Episode]:
    """An episode of these answers, as a player makes its records."""
    outcome = Outcome(b"", 0.0, {"format": 1.0}, False, False, "{}", {})
    seen = (Message("user", "Write a page of documentation. " * 40),)
    draws = [
        Draw("a", turn, POLICY, 0, seen, generation, [outcome] * k, [1.0] * k, 0, 0.1, 0.1)
        for turn, generation in enumerate(answers)
        for k in (len(generation.candidates),)
    ]
    groups = groups_by_observation(ticket, "train/1", draws)
    ending = Ending(True, 1.0, TURNS, 1.0)
    trained = {group.group_id for group in groups}
    record = episode_record(ticket, "train/1", draws, groups, ending, trained=trained)
    return groups, record


async def through_redis(
    folder: Path, answers: list[Generation], size: Size, clock: Clock, *, omits_tokens: bool
) -> float:
    """Complete the tickets, collect their groups, record the round; bytes of Redis a token."""
    port = _free_port()
    argv = server_argv(port, folder, fsync="everysec")
    async with child(*argv) as (pid, _), contextlib.AsyncExitStack() as stack:
        redis = await connect(url(port), connect_for_s=30.0)
        stack.push_async_callback(redis.aclose)
        ledger = StepLedger(redis, JOB)
        round_id = train_round(0)
        tickets = [
            pb.Ticket(
                ticket_id=f"{JOB}/{round_id}/{i:05d}",
                job_id=JOB,
                round_id=round_id,
                kind=pb.ROUND_KIND_TRAIN,
                policy_versions={POLICY: 0},
                omits_tokens=omits_tokens,
            )
            for i in range(size.calls // TURNS)
        ]
        await ledger.open_round(round_id, pb.ROUND_KIND_TRAIN, 0, tickets)
        before = await _held(redis)
        each = itertools.batched(answers, TURNS) if sys.version_info >= (3, 12) else _pairs(answers)
        with clock.of("Valkey", pid), clock.of("player: records"):
            for ticket, pair in zip(tickets, each, strict=True):
                groups, episode = played(ticket, list(pair))
                assert await ledger.complete_ticket(ticket, "0-1", for_trainer(groups), episode)
        grown = (await _held(redis) - before) / size.num_tokens
        collector = Collector(
            redis, JOB, {POLICY: VOCABULARY}, first_step=0, timeout_s=60.0, control=Control()
        )
        with clock.of("Valkey", pid), clock.of("collector"):
            batch = await collector.collect(0)
        assert len(batch.groups[POLICY]) == size.calls, batch.dropped
        await record(ledger, clock, pid, round_id, omits_tokens=omits_tokens)
        return grown


async def record(
    ledger: StepLedger, clock: Clock, pid: int, round_id: str, *, omits_tokens: bool
) -> None:
    """Read the round's episodes, make its metrics and its lines."""
    with clock.of("Valkey", pid), clock.of("recorder: metrics"):
        episodes = await ledger.episodes(round_id, with_tokens=not omits_tokens)
        play_metrics(episodes, 1.0)
    with clock.of("recorder: lines"):
        for line in episode_lines(episodes, with_tokens=not omits_tokens):
            assert line


def _pairs(answers: list[Generation]) -> list[tuple[Generation, ...]]:
    return [tuple(answers[i : i + TURNS]) for i in range(0, len(answers), TURNS)]


async def _held(redis: Redis) -> int:
    return int((await redis.info("memory"))["used_memory_dataset"])


def _free_port() -> int:
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


async def measure(size: Size) -> dict[str, Any]:
    """Every part, with and without tokens in the record."""
    with tempfile.TemporaryDirectory(prefix="troupe-tokens-") as scratch:
        folder = Path(scratch)
        model = await asyncio.to_thread(save_model, folder / "model")
        whole = answer(model, size.candidates, size.tokens)
        (folder / "answer.json").write_bytes(whole)
        asked = Clock({})
        answers = await generations(folder, size, asked)
        rows: dict[str, Any] = {}
        for omits_tokens in (False, True):
            clock = Clock(dict(asked.seconds))
            work = folder / f"redis-{omits_tokens}"
            work.mkdir()
            grown = await through_redis(work, answers, size, clock, omits_tokens=omits_tokens)
            us = {k: round(1e6 * v / size.num_tokens, 4) for k, v in clock.seconds.items()}
            row = {"us_a_token": us, "redis_bytes_a_token": round(grown, 2)}
            rows["without tokens" if omits_tokens else "with tokens"] = row
        wire = len(whole) / (size.candidates * size.tokens)
        return {"rows": rows, "answer_bytes_a_token": round(wire, 1)}


def goals(rows: dict[str, Any]) -> list[dict[str, Any]]:
    """Tokens a second of one core, by part; several players share a job."""
    lines: list[dict[str, Any]] = []
    us = rows["with tokens"]["us_a_token"]
    rate = 1e6 / us["sidecar"]
    lines.append(goal("sidecar, tokens/s a core", round(rate), SIDECAR_RATE, rate >= SIDECAR_RATE))
    for part in ("Valkey", "collector"):
        rate = 1e6 / max(us[part], 1e-9)
        lines.append(goal(f"{part}, tokens/s a core", round(rate), JOB_RATE, rate >= JOB_RATE))
    for how, row in rows.items():
        value = row["redis_bytes_a_token"]
        lines.append(goal(f"Redis, bytes a token, record {how}", value, REDIS_BYTES, value <= 12.0))
        of = row["us_a_token"]
        rate = 1e6 / (of["recorder: metrics"] + of["recorder: lines"])
        name = f"recorder, tokens/s a core, record {how}"
        lines.append(goal(name, round(rate), JOB_RATE, rate >= JOB_RATE))
    player = us["player: answers"] + us["player: records"]
    count = JOB_RATE * player / 1e6
    lines.append(goal("players of one core for 5 M tokens/s", round(count, 2), 4.0, count <= 4.0))
    return lines


def main() -> None:
    """Measure and print."""
    clean_up_on_sigterm()
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m benchmarks.token_path")
    parser.add_argument("--quick", action="store_true", help="few calls: that it works")
    args = parser.parse_args()
    size = Size(8, 1024, 32) if args.quick else Size(8, 1024, 192)
    result = asyncio.run(measure(size))
    for how, row in result["rows"].items():
        for part, value in row["us_a_token"].items():
            print(f"{how:16} {part:20} {value:8.4f} us a token")
        print(f"{how:16} Redis {row['redis_bytes_a_token']:.2f} B a token")
    print(
        json.dumps(
            {
                "benchmark": "token_path",
                "commit": commit(),
                "machine": machine(),
                "load": round(os.getloadavg()[0], 1),
                "candidates": size.candidates,
                "tokens": size.tokens,
                "calls": size.calls,
                **result,
                "goals": goals(result["rows"]),
            }
        )
    )


if __name__ == "__main__":
    main()
