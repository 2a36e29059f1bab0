"""What share of its prompts SGLang finds in its prefix caches, with affinity and without.

Run: ``python -m benchmarks.cache_hits [--quick]``. Two real SGLang servers (on this machine's CPU
where there is no GPU), each behind its sidecar, and the router's fleet over gRPC. Two plays: K
siblings of prompts that share nothing, where (K - 1) / K is the most that can be cached; and
episodes of several turns whose transcripts grow, where the most is what one cache without limits
would have, if it were shared by all replicas. The same plays with a random choice of replica, and
siblings that are sent one by one ("scattered"), show what routing is worth. The last line is one
JSON object; exits 0 whatever the numbers are.
"""

import argparse
import asyncio
import contextlib
import json
import os
import platform
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any

from prometheus_client import REGISTRY
from transformers.utils import logging as transformers_logging

from benchmarks.random_model import save_random_model
from benchmarks.report import commit, goal
from benchmarks.rollout_fleet import Sidecar, TinyTrainer, sidecar
from troupe.api.router.v1.router_pb2 import REPLICA_KIND_ROLLOUT
from troupe.candidates import GenerateRequest, Generation
from troupe.errors import TroupeError
from troupe.spec import parse_spec
from troupe.spec.job import SamplingSpec
from troupe.spec.policy import LoraSpec, PolicySpec
from troupe.tasks.family import Message
from troupe_rollout.engines.sglang import SglangEngine
from troupe_rollout.engines.sglang.environment import look_at_machine
from troupe_rollout.engines.sglang.settings import SglangSettings
from troupe_router.members.store import Member
from troupe_router.play.routing.choose import (
    Choice,
    RouteCandidate,
    RouteRequest,
    Strategy,
    choose,
)
from troupe_router.play.routing.fleet import Fleet
from troupe_router.play.routing.ports import FleetRollout

POINTS = 0.03
CONTEXT = 1024
NUM_WORDS = 60
NEW_TOKENS = 12
JOB = "cache-hits"
POLICY = "p"


@dataclass(frozen=True)
class Size:
    """How much is played."""

    replicas: int = 2
    candidates: int = 8
    prompts: int = 24
    episodes: int = 16
    turns: int = 4
    in_flight: int = 6
    prompt_words: int = 200
    rules_words: int = 40
    turn_words: int = 30


@dataclass
class Account:
    """Prompt tokens of one play: asked for, and those that the engines did not compute."""

    asked: int = 0
    cached: int = 0
    best: int = 0

    def add(self, generation: Generation, best: int) -> None:
        """``best`` of its tokens need not be computed by one shared cache without limits."""
        assert generation.num_cached_tokens is not None
        self.asked += len(generation.prompt_token_ids) * len(generation.candidates)
        self.cached += generation.num_cached_tokens
        self.best += best

    def ratio(self) -> float:
        """Share of the prompt tokens that was cached."""
        return self.cached / self.asked

    def bound(self) -> float:
        """Largest share that could have been."""
        return self.best / self.asked


class SharedCache:
    """What one cache without limits, shared by all replicas, would hold: the bound."""

    def __init__(self) -> None:
        self._seen: dict[int, Any] = {}

    def take(self, generation: Generation) -> int:
        """Tokens of the call that need not be computed; keeps the prompt and its completions."""
        prompt, count = list(generation.prompt_token_ids), len(generation.candidates)
        num_known = self._walk(prompt)
        for candidate in generation.candidates:
            self._walk([*prompt, *candidate.token_ids])
        return num_known + (count - 1) * len(prompt)

    def _walk(self, ids: Sequence[int]) -> int:
        node, num_known, is_known = self._seen, 0, True
        for token in ids:
            is_known = is_known and token in node
            num_known += is_known
            node = node.setdefault(token, {})
        return num_known


@dataclass
class Members:
    """The membership store as the fleet reads it."""

    sidecars: Sequence[Sidecar]

    async def of_job(self, job_id: str) -> list[Member]:
        """Every sidecar's heartbeat."""
        members: list[Member] = []
        for item in self.sidecars:
            replica = item.replica()
            replica.kind = REPLICA_KIND_ROLLOUT
            replica.seen_at = time.time()
            members.append(Member(replica, job_id, (POLICY,)))
        return members


def at_random(rng: Random) -> Strategy:
    """Any replica that holds the version."""

    def pick(request: RouteRequest, candidates: Sequence[RouteCandidate]) -> Choice | None:
        able = [c for c in candidates if c.holds(request.policy, request.policy_version)]
        return Choice(rng.choice(able), "miss") if able else None

    return pick


@dataclass
class Play:
    """Calls of one strategy at one version, and what they cost."""

    port: FleetRollout
    version: int
    size: Size
    account: Account = field(default_factory=Account)
    shared: SharedCache = field(default_factory=SharedCache)

    async def siblings(self, rng: Random) -> None:
        """K candidates each of prompts that share nothing."""

        async def one(number: int) -> None:
            await self._ask([Message("user", words(rng, self.size.prompt_words))], number)

        await in_flight([one(i) for i in range(self.size.prompts)], self.size.in_flight)

    async def episodes(self, rng: Random) -> None:
        """Transcripts that grow by an answer and what the environment says to it."""
        rules = Message("system", words(rng, self.size.rules_words))
        tasks = [words(rng, self.size.prompt_words // 2) for _ in range(self.size.episodes)]

        async def one(number: int) -> None:
            talk = [rules, Message("user", tasks[number])]
            rng = Random(number)
            for turn in range(self.size.turns):
                generation = await self._ask(talk, 100 * number + turn)
                talk.append(Message("assistant", generation.candidates[0].text))
                talk.append(Message("user", words(rng, self.size.turn_words)))

        await in_flight([one(i) for i in range(self.size.episodes)], self.size.in_flight)

    async def scattered(self, rng: Random) -> None:
        """The same prompts with each of the K candidates a call of its own."""
        alone = replace(self, size=replace(self.size, candidates=1))

        async def one(number: int) -> None:
            talk = [Message("user", words(rng, self.size.prompt_words))]
            calls = [alone._ask(talk, i) for i in range(self.size.candidates)]
            await asyncio.gather(*calls)

        await in_flight([one(i) for i in range(self.size.prompts)], self.size.in_flight)

    async def _ask(self, talk: Sequence[Message], seed: int) -> Generation:
        sampling = SamplingSpec(max_new_tokens=NEW_TOKENS)
        request = GenerateRequest(
            POLICY, self.version, tuple(talk), self.size.candidates, sampling, seed
        )
        generation = await self.port.generate(request, timeout_s=300.0)
        self.account.add(generation, self.shared.take(generation))
        return generation


def words(rng: Random, count: int) -> str:
    """Random words of the model's vocabulary; each is one token."""
    return " ".join(f"w{rng.randrange(NUM_WORDS)}" for _ in range(count))


async def in_flight(work: Sequence[Any], count: int) -> None:
    """Run all, ``count`` at a time."""
    gate = asyncio.Semaphore(count)

    async def one(item: Any) -> None:
        async with gate:
            await item

    async with asyncio.TaskGroup() as tasks:
        for item in work:
            tasks.create_task(one(item))


def affinities() -> Counter[str]:
    """What the router's own metric counted so far."""
    counts: Counter[str] = Counter()
    for name in ("hit", "spill", "miss"):
        labels = {"job_id": JOB, "policy": POLICY, "affinity": name}
        value = REGISTRY.get_sample_value("troupe_router_affinity_total", labels)
        counts[name] = int(value or 0)
    return counts


@dataclass
class Rig:
    """Replicas with the trainer's side and the router's. Each play has a version of its own."""

    engines: Sequence[SglangEngine]
    trainer: TinyTrainer
    fleet: Fleet
    size: Size
    version: int = -1

    async def play(self, strategy: Strategy, name: str) -> dict[str, Any]:
        """Publish a version, so that caches are cold, and play under it."""
        self.version += 1
        self.trainer.learn(self.version)
        for engine in self.engines:
            await engine.stage(self.trainer.staged(self.version))
            await engine.activate(POLICY, self.version)
        await self.fleet.refresh()
        play = Play(FleetRollout(self.fleet, strategy=strategy), self.version, self.size)
        before, started = affinities(), time.monotonic()
        await getattr(play, name)(Random(7))
        return {
            "cached_ratio": round(play.account.ratio(), 4),
            "bound": round(play.account.bound(), 4),
            "prompt_tokens": play.account.asked,
            "seconds": round(time.monotonic() - started, 2),
            "affinity": dict(affinities() - before),
        }


async def measure(folder: Path, size: Size) -> dict[str, Any]:
    """All plays with both strategies."""
    model = save_random_model(
        folder / "model", hidden=96, context=CONTEXT, num_words=NUM_WORDS, sharpness=1.0
    )
    policy = PolicySpec(model=str(model), train=LoraSpec(rank=4, alpha=8))
    async with contextlib.AsyncExitStack() as stack:
        began = time.monotonic()
        engines = [SglangEngine(_settings(folder / f"work-{i}")) for i in range(size.replicas)]
        for engine in engines:
            stack.push_async_callback(engine.stop)
        await asyncio.gather(*(engine.start({POLICY: policy}) for engine in engines))
        started_s = time.monotonic() - began
        sidecars = [
            await stack.enter_async_context(sidecar(engine, folder / f"in-{i}", f"r{i}"))
            for i, engine in enumerate(engines)
        ]
        fleet = Fleet(JOB, _spec(policy), Members(sidecars))  # pyright: ignore
        stack.push_async_callback(fleet.close)
        rig = Rig(engines, TinyTrainer(POLICY, policy, folder / "out"), fleet, size)
        any_one = at_random(Random(5))
        results = {
            "affinity_siblings": await rig.play(choose, "siblings"),
            "affinity_episodes": await rig.play(choose, "episodes"),
            "random_siblings": await rig.play(any_one, "siblings"),
            "random_scattered": await rig.play(any_one, "scattered"),
            "random_episodes": await rig.play(any_one, "episodes"),
        }
    return {"started_s": round(started_s, 1), **_summary(results, size)}


def _summary(results: dict[str, Any], size: Size) -> dict[str, Any]:
    bound = (size.candidates - 1) / size.candidates
    siblings, episodes = results["affinity_siblings"], results["affinity_episodes"]
    gap = bound - siblings["cached_ratio"]
    turn_gap = episodes["bound"] - episodes["cached_ratio"]
    return {
        "n": size.prompts + size.episodes * size.turns,
        "floor": {"siblings": bound, "episodes": episodes["bound"]},
        "ratio": round(siblings["cached_ratio"] / bound, 4),
        "plays": results,
        "worth_points": round(
            100 * (episodes["cached_ratio"] - results["random_episodes"]["cached_ratio"]), 2
        ),
        "goals": [
            goal("below (K - 1) / K, siblings", round(gap, 4), POINTS, gap <= POINTS),
            goal(
                "below one shared cache, episodes", round(turn_gap, 4), POINTS, turn_gap <= POINTS
            ),
        ],
    }


def _measured(folder: Path, size: Size) -> dict[str, Any]:
    """The measurement, or why there is none: without SGLang nothing is measured."""
    try:
        asyncio.run(look_at_machine(_settings(folder)))
    except TroupeError as error:
        print(f"Nothing was measured: {error.message}")
        return {"skipped": error.message, "goals": []}
    return asyncio.run(measure(folder, size))


def _settings(work: Path) -> SglangSettings:
    return SglangSettings(work_dir=str(work), max_running_requests=64, start_timeout_s=280)


def _spec(policy: PolicySpec) -> Any:
    return parse_spec(
        {
            "name": JOB,
            "steps": 1,
            "task": {"name": "plan_path"},
            "workflow": {"order": ["a"]},
            "agents": {"a": {"policy": POLICY}},
            "policies": {POLICY: policy.model_dump()},
        }
    )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m benchmarks.cache_hits")
    parser.add_argument("--candidates", type=int, default=Size.candidates)
    parser.add_argument("--quick", action="store_true", help="a quarter of the calls")
    args = parser.parse_args()
    size = Size(candidates=args.candidates)
    if args.quick:
        size = Size(candidates=args.candidates, prompts=6, episodes=6, turns=3)
    transformers_logging.disable_progress_bar()
    with tempfile.TemporaryDirectory(prefix="troupe-cache-") as scratch:
        figures = _measured(Path(scratch), size)
    head = {
        "benchmark": "cache_hits",
        "commit": commit(),
        "machine": f"{os.cpu_count()} x {platform.machine()}",
        "load": os.getloadavg()[0],
        "replicas": size.replicas,
        "candidates": size.candidates,
    }
    print(json.dumps({**head, **figures}))


if __name__ == "__main__":
    main()
