"""Time from export until every replica answers with the new version, beside a plain copy.

Run: ``python -m benchmarks.weight_push [--quick]``. The publisher, the sidecars, the transport and
the engine are the real ones; the floor is as many bytes over loopback TCP to as many receivers, in
the same run. The last line is one JSON object; exits 0 whatever the numbers are.
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
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from transformers.utils import logging as transformers_logging

from benchmarks.push_watch import memory, memory_goals
from benchmarks.pushes_at_once import at_once
from benchmarks.random_model import save_random_model
from benchmarks.report import commit
from benchmarks.rollout_fleet import Members, TinyTrainer, publisher, sidecar
from troupe.runtime.engines.engine import Engine
from troupe.runtime.weights.store import open_store
from troupe.spec.policy import FullSpec, LoraSpec, PolicySpec
from troupe_rollout.engines.cpu import CpuEngine
from troupe_rollout.engines.sglang import SglangEngine
from troupe_rollout.engines.sglang.settings import SglangSettings
from troupe_trainer.checkpoint.export import Export
from troupe_trainer.publish import Transport
from troupe_trainer.publish.broadcast import BroadcastTransport
from troupe_trainer.publish.push_events import NoPushListener, PushResult
from troupe_trainer.publish.stored import StoredTransport
from troupe_trainer.publish.stream import StreamTransport

SHAPES: dict[str, dict[str, Any]] = {
    "tiny": {"hidden": 96, "layers": 2, "heads": 4, "kv_heads": 2},
    "0.5b": {"hidden": 960, "layers": 36, "heads": 15, "kv_heads": 3, "num_words": 150_000},
}
LORA_GOAL_S = 0.25
FULL_GOAL_RATIO = 3.0
COPY_BLOCK = 1 << 20
TELLING_BYTES = 10**8
"""Of full weights with fewer, the floor is less than one call and its ratio says nothing."""
FULL_GB = {"1.7B bfloat16": 3.4, "8B bfloat16": 16.4}
ADAPTER_GB = {"8B, rank 32, bfloat16": 0.175}
PHASES = ("transfer_s", "stage_s", "canary_s", "activate_s")


@dataclass(frozen=True)
class Case:
    """One line of the table."""

    shape: str
    kind: str
    replicas: int
    via: str = "grpc"
    dtype: str = "float32"
    adapter_dtype: str = "float32"


@dataclass
class Stopwatch(NoPushListener):
    """Keeps the phases of the newest push; of several replicas the slowest."""

    phases: dict[str, float] = field(default_factory=dict[str, float])

    async def published(self, export: Export, via: str, results: Sequence[PushResult]) -> None:
        """See `PushListener`."""
        self.phases = {name: max(getattr(a, name) for a in results) for name in PHASES}


def transport(via: str, folder: Path) -> Transport:
    """The transport of one name, with everything on this machine."""
    if via == "store":
        return StoredTransport(open_store(str(folder / "store")), "job")
    if via == "distributed":
        return BroadcastTransport(StreamTransport(), host="127.0.0.1")
    return StreamTransport()


async def measure(
    case: Case, engine: Callable[[Path], Engine], folder: Path, n: int
) -> dict[str, Any]:
    """Push ``n`` versions to ``case.replicas`` replicas."""
    model = folder / f"model-{case.shape}"
    if not model.exists():
        sharpness = 3.0 if case.shape == "tiny" else 1.0
        save_random_model(model, sharpness=sharpness, **SHAPES[case.shape])
    train = LoraSpec(rank=16, alpha=32) if case.kind == "lora" else FullSpec()
    dtype: Any = case.dtype
    policies = {"p": PolicySpec(model=str(model), train=train, dtype=dtype)}
    trainer = TinyTrainer("p", policies["p"], folder / f"out-{case.kind}-{case.shape}")
    engines = [engine(folder / f"work-{i}") for i in range(case.replicas)]
    async with contextlib.AsyncExitStack() as stack:
        for replica in engines:
            stack.push_async_callback(replica.stop)
        if engines[0].name == "cpu":  # transformers loads one model at a time in a process
            for replica in engines:
                await replica.start(policies)
        else:
            await asyncio.gather(*(replica.start(policies) for replica in engines))
        members = Members(
            [
                await stack.enter_async_context(
                    sidecar(replica, folder / f"in-{i}", f"r{i}", store=str(folder / "store"))
                )
                for i, replica in enumerate(engines)
            ]
        )
        watch = Stopwatch()
        way = transport(case.via, folder)
        publish = publisher(members, policies, timeout_s=600.0, transport=way, listener=watch)
        stack.push_async_callback(publish.close)
        rows: list[dict[str, float]] = []
        for version in range(n + 1):
            trainer.learn(version, size=0.01)
            row = await _push(trainer, members, publish.publish, version, case)
            rows.append(row | watch.phases)
            await publish.forget_before("p", version)
    return _summary(case, rows[1:])


async def _push(
    trainer: TinyTrainer,
    members: Members,
    publish: Callable[..., Any],
    version: int,
    case: Case,
) -> dict[str, float]:
    began = time.perf_counter()
    is_live = case.via == "distributed" and case.kind == "full"
    export = trainer.live(version) if is_live else trainer.export(version, case.adapter_dtype)
    exported = time.perf_counter()
    await publish(export)
    published = time.perf_counter()
    answers = await asyncio.gather(
        *(m.client.score("p", version, export.canary.token_ids) for m in members.sidecars)
    )
    ended = time.perf_counter()
    worst = max(
        abs(a - b)
        for answer in answers
        for a, b in zip(answer, export.canary_logprobs, strict=True)
    )
    limit = 1e-3 if case.dtype == "float32" else 0.25
    assert worst < limit, f"version {version} did not arrive: {worst}"
    floor_s = await _copy_floor(export, len(members.sidecars))
    return {
        "push_s": ended - began,
        "export_s": exported - began,
        "publish_s": published - exported,
        "answer_s": ended - published,
        "floor_s": floor_s,
        "bytes": float(export.manifest.size_bytes),
    }


async def _copy_floor(export: Export, receivers: int) -> float:
    """As many bytes from memory over loopback TCP into memory, to all receivers at once."""
    block, size = bytes(COPY_BLOCK), export.manifest.size_bytes
    done: asyncio.Queue[int] = asyncio.Queue()

    async def receive(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        taken = bytearray()
        while data := await reader.read(COPY_BLOCK):
            taken += data
        writer.close()
        done.put_nowait(len(taken))

    server = await asyncio.start_server(receive, "127.0.0.1", 0, limit=COPY_BLOCK)
    port = server.sockets[0].getsockname()[1]
    began = time.perf_counter()

    async def send() -> None:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        for start in range(0, size, COPY_BLOCK):
            writer.write(block[: size - start])
            await writer.drain()
        writer.close()

    await asyncio.gather(*(send() for _ in range(receivers)))
    for _ in range(receivers):
        assert await done.get() == size
    took_s = time.perf_counter() - began
    server.close()
    return took_s


def _summary(case: Case, rows: list[dict[str, float]]) -> dict[str, Any]:
    def of(name: str) -> list[float]:
        return sorted(row[name] for row in rows)

    pushes, floors = of("push_s"), of("floor_s")
    p50, floor = statistics.median(pushes), statistics.median(floors)
    return {
        "shape": case.shape,
        "kind": case.kind,
        "replicas": case.replicas,
        "via": case.via,
        "dtype": case.dtype,
        **({"adapter_dtype": case.adapter_dtype} if case.kind == "lora" else {}),
        "bytes": int(rows[0]["bytes"]),
        "n": len(rows),
        "p50_s": round(p50, 4),
        "p95_s": round(pushes[min(len(pushes) - 1, int(0.95 * len(pushes)))], 4),
        "export_s": round(statistics.median(of("export_s")), 4),
        "publish_s": round(statistics.median(of("publish_s")), 4),
        **{name: round(statistics.median(of(name)), 4) for name in PHASES},
        "answer_s": round(statistics.median(of("answer_s")), 4),
        "floor_s": round(floor, 4),
        "ratio": round(p50 / floor, 2),
    }


def paths(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Seconds of each path, of its largest model, and what larger ones would take.

    ``push_s(GB, replicas) = fixed_s + GB * seconds_a_gb``, each of one replica as measured and
    ``_more`` for each further one: the mean difference to the most that were measured. Of an
    adapter only the transfer grows with its bytes: merging it and the checks are of the base's
    size, and fixed. Of full weights all is of their size.
    """
    lines: list[dict[str, Any]] = []
    for kind, via in dict.fromkeys((row["kind"], row["via"]) for row in rows):
        of = [row for row in rows if (row["kind"], row["via"]) == (kind, via)]
        largest = max(row["bytes"] for row in of)
        of = [row for row in of if row["bytes"] == largest]
        growing = "p50_s" if kind == "full" else "transfer_s"
        one, more = _by_replicas({r["replicas"]: r[growing] * 1e9 / largest for r in of})
        fixed, fixed_more = _by_replicas({r["replicas"]: r["p50_s"] - r[growing] for r in of})
        counted = {row["replicas"] for row in of}
        counts = (1, 8) if len(counted) > 1 else tuple(counted)
        sizes = FULL_GB if kind == "full" else ADAPTER_GB
        lines.append(
            {
                "kind": kind,
                "via": via,
                "measured_gb": round(largest / 1e9, 4),
                "fixed_s": round(fixed, 4),
                "fixed_s_more": round(fixed_more, 4) if len(counted) > 1 else None,
                "seconds_a_gb": round(one, 2),
                "seconds_a_gb_more": round(more, 2) if len(counted) > 1 else None,
                "extrapolated_s": {
                    name: {
                        n: round(fixed + gb * one + (n - 1) * (fixed_more + gb * more), 2)
                        for n in counts
                    }
                    for name, gb in sizes.items()
                },
            }
        )
    return lines


def _by_replicas(values: dict[int, float]) -> tuple[float, float]:
    """The value for one replica, and what each further one adds."""
    fewest, most = min(values), max(values)
    more = (values[most] - values[fewest]) / max(1, most - fewest)
    return values[fewest] - (fewest - 1) * more, more


def _goals(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    goals: list[dict[str, Any]] = []
    for row in rows:
        if row["kind"] == "full" and row["bytes"] < TELLING_BYTES:
            continue
        name = f"{row['kind']} {row['shape']} x{row['replicas']} {row['via']}"
        if row["kind"] == "lora":
            holds = row["p50_s"] <= LORA_GOAL_S
            goals.append({"name": f"{name} p50_s", "value": row["p50_s"], "goal": LORA_GOAL_S})
        else:
            holds = row["ratio"] <= FULL_GOAL_RATIO
            goals.append({"name": f"{name} ratio", "value": row["ratio"], "goal": FULL_GOAL_RATIO})
        goals[-1]["holds"] = holds
    return goals


def engine_of(name: str) -> Callable[[Path], Engine]:
    """Makes engines of one name, each in a folder of its own."""
    if name == "cpu":
        return lambda folder: CpuEngine()
    settings = {"device": "auto", "max_total_tokens": 2048, "max_running_requests": 8}
    return lambda folder: SglangEngine(SglangSettings(**settings, work_dir=str(folder)))  # pyright: ignore


def main() -> None:
    """Run every case and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m benchmarks.weight_push")
    parser.add_argument("--engine", choices=["sglang", "cpu"], default="sglang")
    parser.add_argument("--shapes", default="tiny", help="of tiny,0.5b")
    parser.add_argument("--kinds", default="lora,full")
    parser.add_argument("--replicas", default="1,2,4")
    parser.add_argument("--via", default="grpc", help="of grpc,store,distributed")
    parser.add_argument("--dtype", default="float32", choices=["float32", "bfloat16"])
    parser.add_argument("--adapter-dtype", default="float32", choices=["float32", "bfloat16"])
    parser.add_argument("--n", type=int, default=20)
    parser.add_argument("--quick", action="store_true", help="cpu, tiny, one replica, 5 pushes")
    args = parser.parse_args()
    if args.quick:
        args.engine, args.shapes, args.replicas, args.n = "cpu", "tiny", "1", 5
    transformers_logging.disable_progress_bar()
    together: dict[str, Any] = {}
    watched: dict[str, Any] = {}
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="troupe-push-") as scratch:
        for shape in args.shapes.split(","):
            for kind in args.kinds.split(","):
                for via in args.via.split(","):
                    for replicas in map(int, args.replicas.split(",")):
                        case = Case(shape, kind, replicas, via, args.dtype, args.adapter_dtype)
                        engine = engine_of(args.engine)
                        rows.append(asyncio.run(measure(case, engine, Path(scratch), args.n)))
                        print(json.dumps(rows[-1]), flush=True)
        if args.engine == "cpu":
            together = asyncio.run(at_once(engine_of("cpu"), SHAPES["tiny"], Path(scratch), args.n))
            watched = asyncio.run(memory(Path(scratch)))
    print(
        json.dumps(
            {
                "benchmark": "weight_push",
                "commit": commit(),
                "machine": f"{os.cpu_count()} x {platform.machine()}",
                "load": os.getloadavg()[0],
                "engine": args.engine,
                "rows": rows,
                "paths": paths(rows),
                "at_once": together,
                "memory": watched,
                "goals": [*(memory_goals(watched) if watched else []), *_goals(rows)],
            }
        )
    )


if __name__ == "__main__":
    main()
