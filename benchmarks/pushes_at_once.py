"""Pushes of several policies at once beside pushes one after another; a part of `weight_push`."""

import asyncio
import contextlib
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.random_model import save_random_model
from benchmarks.rollout_fleet import Members, Sidecar, TinyTrainer, publisher, sidecar
from troupe.runtime.engines.engine import Engine
from troupe.spec.policy import LoraSpec, PolicySpec

TOGETHER = 2


async def at_once(
    engine: Callable[[Path], Engine], shape: dict[str, Any], folder: Path, n: int
) -> dict[str, Any]:
    """Adapters of ``TOGETHER`` policies, a replica for each: pushed at once, as a step does, and
    one after another, in turns.

    Files are made before. On one machine replicas share its cores, which on machines of their own
    they do not.
    """
    model = folder / "model-together"
    save_random_model(model, sharpness=3.0, **shape)
    train = LoraSpec(rank=16, alpha=32)
    policies = {f"p{i}": PolicySpec(model=str(model), train=train) for i in range(TOGETHER)}
    async with contextlib.AsyncExitStack() as stack:
        sidecars: list[Sidecar] = []
        for name, policy in policies.items():
            replica = engine(folder / f"together-{name}")
            stack.push_async_callback(replica.stop)
            await replica.start({name: policy})
            place = sidecar(replica, folder / f"together-in-{name}", f"r-{name}")
            sidecars.append(await stack.enter_async_context(place))
        trainers = [TinyTrainer(n, p, folder / "out-together") for n, p in policies.items()]
        publish = publisher(Members(sidecars), policies, timeout_s=600.0)
        stack.push_async_callback(publish.close)
        took: dict[bool, list[float]] = {True: [], False: []}
        for version in range(2 * n + 2):
            exports = [trainer.export(version) for trainer in trainers]
            is_at_once, began = version % 2 == 0, time.perf_counter()
            if is_at_once:
                await asyncio.gather(*map(publish.publish, exports))
            else:
                for export in exports:
                    await publish.publish(export)
            if version > 1:
                took[is_at_once].append(time.perf_counter() - began)
            for name in policies:
                await publish.forget_before(name, version)
    together, apart = statistics.median(took[True]), statistics.median(took[False])
    return {
        "policies": TOGETHER,
        "n": n,
        "at_once_s": round(together, 4),
        "one_by_one_s": round(apart, 4),
        "ratio": round(together / apart, 2),
    }
