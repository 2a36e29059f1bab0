"""A step that learns while its round is played, against the longer of playing and learning.

Run: ``python -m benchmarks.overlap [--latencies 7B] [--quick]``. Real are Valkey, the ledger, the
collector, and the learner but for its passes. Simulated are the times: a ticket ends after a drawn
time, as from engines on other machines, and a micro-batch takes its share of the learning time, as
on a device of its own (the learner's seam ``Passes.gradient`` sleeps instead of computing). A
ticket's tokens are in proportion to its time.

Latencies: ``cpu engine`` and ``7B`` draw from what was recorded on the cpu engine
(results/generate_latencies.json) and on engines of a 7B model (results/latencies_7b.json, see
`benchmarks.recorded_latencies`), one call a ticket or eight, ``turns``; ``long tail`` is log-normal
(sigma 1): a few tickets take ten times the median. Of 1.7B there is no recording.

``tail``: how much sooner a round ends when its longest tickets start first
(`benchmarks.tail_order`). ``sums``: the same cells with simulated times and no ledger, for each way
to sum gradients (`benchmarks.window_sums`); ``sum costs``: its bytes and time
(`benchmarks.sum_cost`).

``floor`` is what no schedule can beat that is on-policy and learns a ticket when it is played: the
same work without windows, order or limit. Both arms are interleaved. The last line is one JSON
object; exits 0 whatever it shows.
"""

import argparse
import asyncio
import heapq
import json
import math
import os
import random
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from redis.asyncio import Redis

from benchmarks.random_model import save_random_model
from benchmarks.recorded_latencies import LATENCIES_7B
from benchmarks.redis_fsync import valkey
from benchmarks.report import clean_up_on_sigterm, commit, goal, machine
from benchmarks.scale_engines import LATENCIES, Latencies
from benchmarks.sum_cost import LAYERS, cost_rows
from benchmarks.tail_order import tail_rows
from benchmarks.window_sums import SEEDS, sum_row
from troupe.algorithms.load import load_algorithm
from troupe.api.records.v1 import records_pb2 as pb
from troupe.ids import group_id, prompt_digest, ticket_id, train_round
from troupe.runtime.streams.ledger import StepLedger
from troupe.runtime.streams.redis import connect
from troupe.spec.job import JobSpec
from troupe_trainer.control import Control
from troupe_trainer.learn.collector import Collector
from troupe_trainer.learn.learners import Learners
from troupe_trainer.learn.outcome import Fixed, Minibatch
from troupe_trainer.learn.passes import Passes
from troupe_trainer.learn.windows import Windows
from troupe_trainer.model.packing import Microbatch

GOAL = 1.1
RECORDED = {"cpu engine": LATENCIES, "7B": LATENCIES_7B}
JOB = "overlap"
VOCABULARY = 60
MOST_TOKENS = 100


@dataclass(frozen=True)
class Cell:
    """One round: its engines, and how long learning takes beside playing."""

    latencies: str
    tickets: int
    in_flight: int
    ratio: float
    turns: int = 1

    @property
    def name(self) -> str:
        """In the goals."""
        return (
            f"{self.latencies}, {self.turns} turns, {self.tickets} tickets, {self.in_flight} at "
            f"once, learn/play {self.ratio:g}"
        )


CELLS = (
    Cell("cpu engine", 256, 64, 0.8, turns=8),
    *(
        Cell(latencies, tickets, in_flight, ratio)
        for latencies in ("7B", "long tail")
        for tickets, in_flight in ((64, 16), (256, 64))
        for ratio in (0.5, 0.9)
    ),
    Cell("7B", 256, 64, 0.9, turns=8),
    Cell("7B", 256, 256, 0.9),
    Cell("long tail", 64, 64, 0.5),
    Cell("long tail", 256, 256, 0.9),
)
QUICK = (Cell("long tail", 64, 16, 0.5), Cell("7B", 64, 16, 0.5))


def ends(cell: Cell, play_s: float, seed: int) -> list[float]:
    """When each ticket ends, in seconds from the opening of the round, which takes ``play_s``."""
    took = [_draw(cell, f"{seed}/{number}") for number in range(cell.tickets)]
    engines = [0.0] * cell.in_flight
    ended: list[float] = []
    for duration in took:
        at = heapq.heappop(engines) + duration
        heapq.heappush(engines, at)
        ended.append(at)
    return [at * play_s / max(ended) for at in ended]


def shares(cell: Cell, seed: int) -> list[float]:
    """Each ticket's share of the learning, in proportion to its time."""
    took = [_draw(cell, f"{seed}/{number}") for number in range(cell.tickets)]
    return [duration / sum(took) for duration in took]


def _draw(cell: Cell, seed: str) -> float:
    rng = random.Random(seed)
    if path := RECORDED.get(cell.latencies):
        return (
            sum(_recorded(path).draw(rng.getrandbits(32)) for _ in range(cell.turns)) / cell.turns
        )
    return rng.lognormvariate(0.0, 1.0)


@cache
def _recorded(path: Path) -> Latencies:
    return Latencies(1.0, path)


def floor_s(ended: Sequence[float], costs: Sequence[float]) -> float:
    """The end of learning when each ticket is learnt as soon as it and the trainer are there."""
    at = 0.0
    for ready, cost in sorted(zip(ended, costs, strict=True)):
        at = max(at, ready) + cost
    return at


class SleepingPasses(Passes):
    """Passes that only take ``token_s`` for each trained token, as a device of their own would."""

    token_s = 0.0

    def gradient(self, batch: Microbatch, fixed: Fixed, counts: bool) -> Minibatch:
        """No gradient, after as long as the device would take."""
        time.sleep(self.token_s * len(batch.targets_N))
        return Minibatch(sums=defaultdict(float), num_tokens=len(batch.targets_N))


def groups_of(cell: Cell, step: int, position: int, seed: int) -> list[pb.Group]:
    """The group of one ticket, with tokens in proportion to its time."""
    rng = random.Random(f"{seed}/{position}")
    ticket = ticket_id(JOB, train_round(step), position)
    length = min(MOST_TOKENS, max(1, round(4 * _draw(cell, f"{seed}/{position}"))))
    prompt = [rng.randrange(4, VOCABULARY) for _ in range(8)]
    digest = prompt_digest(prompt)
    group = pb.Group(
        group_id=group_id(ticket, "solver", 0),
        job_id=JOB,
        step=step,
        task_id=f"train/{position}",
        agent="solver",
        policy="p",
        policy_version=step,
        key=pb.GROUP_KEY_OBSERVATION,
        prompts=[pb.Prompt(digest=digest, token_ids=prompt)],
        ticket_id=ticket,
    )
    for index in range(4):
        group.candidates.add(
            index=index,
            token_ids=[rng.randrange(4, VOCABULARY) for _ in range(length)],
            rollout_logprobs=[-4.0] * length,
            finish_reason=pb.FINISH_REASON_STOP,
            policy_version=step,
            prompt_digest=digest,
            reward=float(index % 2),
        )
    return [group]


def spec_of(cell: Cell, model: Path, overlap: bool) -> JobSpec:
    """A job of the cell; its tickets are as long as a micro-batch may be."""
    return JobSpec.model_validate(
        {
            "name": JOB,
            "steps": 1000,
            "tasks_per_step": cell.tickets,
            "task": {"name": "plan_path"},
            "workflow": {"order": ["solver"], "max_turns": 1},
            "agents": {"solver": {"policy": "p"}},
            "policies": {"p": {"model": str(model), "train": {"kind": "lora", "rank": 2}}},
            "algorithm": {"group_size": 4},
            "sampling": {"max_new_tokens": MOST_TOKENS},
            "batch": {"tokens_per_row": 512, "rows_per_microbatch": 1, "overlap": overlap},
        }
    )


@dataclass
class Arm:
    """A trainer with or without overlap, and its job's stream."""

    learners: Learners
    redis: Redis
    job: str
    step: int = 0

    async def play(self, cell: Cell, play_s: float, seed: int) -> float:
        """One step: opened, played and learnt; the seconds."""
        step, self.step = self.step, self.step + 1
        ledger = StepLedger(self.redis, JOB)
        ended = ends(cell, play_s, seed)
        all_groups = [groups_of(cell, step, position, seed) for position in range(cell.tickets)]
        tokens = sum(len(c.token_ids) for of in all_groups for g in of for c in g.candidates)
        passes: Any = self.learners.by_policy["p"]._passes  # pyright: ignore[reportPrivateUsage]
        passes.token_s = cell.ratio * play_s / tokens
        tickets = [
            pb.Ticket(
                ticket_id=ticket_id(JOB, train_round(step), position),
                job_id=JOB,
                round_id=train_round(step),
                kind=pb.ROUND_KIND_TRAIN,
                step=step,
            )
            for position in range(cell.tickets)
        ]
        collector = Collector(
            self.redis,
            JOB,
            {"p": VOCABULARY + 8},
            first_step=step,
            timeout_s=300,
            control=Control(),
        )
        await ledger.open_round(train_round(step), pb.ROUND_KIND_TRAIN, step, tickets)
        began = time.monotonic()

        async def end(position: int) -> None:
            await asyncio.sleep(max(0.0, began + ended[position] - time.monotonic()))
            episode = pb.Episode(episode_id=tickets[position].ticket_id, step=step)
            groups = all_groups[position]
            await ledger.complete_ticket(tickets[position], f"1-{position + 1}", groups, episode)

        playing = [asyncio.create_task(end(position)) for position in range(cell.tickets)]
        batch = await collector.collect(step, ahead=self.learners.while_played)
        await self.learners.learn(batch)
        took = time.monotonic() - began
        await asyncio.gather(*playing)
        await collector.ack_below(step + 1)
        await ledger.mark_recorded(train_round(step))
        return took


async def measure(
    cell: Cell, model: Path, redis: Redis, play_s: float, steps: int
) -> dict[str, Any]:
    """The row of one cell: medians of step time over the longer of playing and learning."""
    longest = max(1.0, cell.ratio) * play_s
    rows: dict[bool, list[float]] = {True: [], False: []}
    floors: list[float] = []
    arms: dict[bool, Arm] = {}
    try:
        for overlap in (True, False):
            learners = await Learners.load(
                spec_of(cell, model, overlap), model, device="cpu", threads=1
            )
            learner = learners.by_policy["p"]
            passes = learner._passes  # pyright: ignore[reportPrivateUsage]
            slow = SleepingPasses(
                learner.model,
                learner._algorithm,  # pyright: ignore[reportPrivateUsage]
                passes.coefficients,
                passes.memory,
            )
            learner._passes = slow  # pyright: ignore[reportPrivateUsage]
            arms[overlap] = Arm(learners, redis, JOB)
        for number in range(steps):
            for overlap in (True, False) if number % 2 else (False, True):
                await redis.flushall()
                rows[overlap].append(await arms[overlap].play(cell, play_s, number) / longest)
            ended = ends(cell, play_s, number)
            tokens = [
                sum(len(c.token_ids) for g in groups_of(cell, 0, p, number) for c in g.candidates)
                for p in range(cell.tickets)
            ]
            costs = [cell.ratio * play_s * count / sum(tokens) for count in tokens]
            floors.append(floor_s(ended, costs) / longest)
    finally:
        for arm in arms.values():
            arm.learners.close()
    on, off = statistics.median(rows[True]), statistics.median(rows[False])
    return {
        "cell": cell.name,
        "overlap": round(on, 3),
        "spread": [round(min(rows[True]), 3), round(max(rows[True]), 3)],
        "without": round(off, 3),
        "floor": round(statistics.median(floors), 3),
        "n": steps,
        "load": round(os.getloadavg()[0], 1),
    }


def sums_of(cell: Cell) -> dict[str, Any]:
    """The cell's row of `benchmarks.window_sums`, and its floor."""
    spec = spec_of(cell, Path("model"), overlap=True)
    sampler = load_algorithm(spec.algorithm).sampler()

    def windows(is_exact: bool) -> list[range]:
        of_round = Windows(spec, sampler, is_exact=is_exact)
        count = of_round.count(cell.tickets)
        return [of_round.tickets_of(window, cell.tickets) for window in range(count)]

    rounds = [(ends(cell, 1.0, seed), shares(cell, seed)) for seed in range(SEEDS)]
    floors = [floor_s(ended, [cell.ratio * c for c in costs]) for ended, costs in rounds]
    row = {"cell": cell.name, **sum_row(windows, rounds, cell.ratio)}
    return {**row, "floor": round(statistics.median(floors), 2)}


async def run(
    cells: Sequence[Cell], url: str, model: Path, play_s: float, steps: int
) -> list[dict[str, Any]]:
    """All cells, one after another."""
    rows: list[dict[str, Any]] = []
    redis = await connect(url)
    for cell in cells:
        rows.append(await measure(cell, model, redis, play_s, steps))
        print(json.dumps(rows[-1]), flush=True)
    await redis.aclose()
    return rows


def main() -> None:
    """Measure every cell and compare with the goal."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.overlap")
    parser.add_argument("--play-s", type=float, default=20.0, help="seconds of a simulated round")
    parser.add_argument("--steps", type=int, default=3, help="rounds of each cell and arm")
    parser.add_argument("--latencies", help="only the cells of these: cpu engine, 7B, long tail")
    parser.add_argument("--quick", action="store_true", help="two cells, 4 s, once")
    args = parser.parse_args()
    if args.quick:
        args.play_s, args.steps = 4.0, 1
    clean_up_on_sigterm()
    cells = [
        cell
        for cell in (QUICK if args.quick else CELLS)
        if args.latencies in (None, cell.latencies)
    ]
    with tempfile.TemporaryDirectory(prefix="troupe-overlap-") as scratch:
        folder = Path(scratch)
        model = save_random_model(folder / "model", hidden=16, layers=1, heads=2, kv_heads=1)
        with valkey("everysec", folder / "redis") as url:
            rows = asyncio.run(run(cells, url, model, args.play_s, args.steps))
        costs = cost_rows(folder, layers=2 if args.quick else LAYERS)
    values = [r["overlap"] for r in rows]
    tail = tail_rows()
    for row in tail:
        print(json.dumps({"longest first": row}), flush=True)
    sums = [sums_of(cell) for cell in CELLS if args.latencies in (None, cell.latencies)]
    for row in sums:
        print(json.dumps({"sums": row}), flush=True)
    for row in costs:
        print(json.dumps({"sum costs": row}), flush=True)
    goals = [goal(r["cell"], r["overlap"], GOAL, r["overlap"] <= GOAL) for r in rows]
    report = {"benchmark": "overlap", "commit": commit(), "machine": machine(), "spec": vars(args)}
    middle = {"n": args.steps, "median": round(statistics.median(values), 3)}
    spread = {"spread": [min(values, default=math.nan), max(values, default=math.nan)]}
    more = {"rows": rows, "tail": tail, "sums": sums, "sum costs": costs, "goals": goals}
    print(json.dumps({**report, **middle, **spread, **more}))


if __name__ == "__main__":
    main()
