"""A replica of the cpu engine as a process: prints its address, ends when its stdin closes."""

import asyncio
import sys
from pathlib import Path

from benchmarks.rollout_fleet import sidecar
from troupe.spec.policy import FullSpec, PolicySpec
from troupe_rollout.engines.cpu import CpuEngine


async def main(model: str, folder: str) -> None:
    """Serve policy ``p``, whose weights are all trained."""
    engine = CpuEngine()
    await engine.start({"p": PolicySpec(model=model, train=FullSpec())})
    async with sidecar(engine, Path(folder), push_lease_s=600.0) as place:
        print(place.address, flush=True)
        await asyncio.to_thread(sys.stdin.read)
    await engine.stop()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
