"""Renders prompts without holding up the event loop."""

import asyncio

from troupe.runtime.engines.engine import Engine
from troupe.tasks.family import Observation, tools_of

LONG_CHARS = 1 << 16
"""Encoding a longer text releases the GIL and runs on a thread: a megabyte takes seconds."""


async def rendered(engine: Engine, policy: str, seen: Observation) -> list[int]:
    """``engine.render(policy, seen)``, whose caller's deadline holds however long the prompt is."""
    num_chars = sum(len(message.described) for message in seen) + len(repr(tools_of(seen)))
    if num_chars <= LONG_CHARS:
        return engine.render(policy, seen)
    return await asyncio.to_thread(engine.render, policy, seen)
