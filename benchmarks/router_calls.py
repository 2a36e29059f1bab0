"""The calls of `benchmarks.router_overhead`, and how long they take: the same in both processes."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

from troupe.spec.job import SamplingSpec
from troupe.tasks.family import Message

IN_FLIGHT = 64
CANDIDATES = 8
NUM_PROMPTS = 60
"""Prompts that differ; the next one is the first again."""
Call = Callable[[int], Awaitable[Any]]


def sampling(num_tokens: int) -> SamplingSpec:
    """How each request samples."""
    return SamplingSpec(max_new_tokens=num_tokens)


def observation(number: int) -> tuple[Message, ...]:
    """A prompt of 60 words that differs by number."""
    words = [f"w{(number * 7 + i) % 60}" for i in range(60)]
    return (Message(role="user", content=" ".join(words)),)


async def latencies(call: Call, n: int) -> list[float]:
    """One at a time, seconds."""
    seconds: list[float] = []
    for number in range(n):
        began = time.perf_counter()
        await call(number)
        seconds.append(time.perf_counter() - began)
    return seconds


async def crowd(call: Call, num_calls: int, took_s: float, rounds: int) -> list[float]:
    """Seconds beyond ``took_s`` of calls of which ``num_calls`` are always in flight.

    They begin evenly spread over ``took_s``; each is followed by the next at once. The first of
    each is left out.
    """
    beyond: list[float] = []

    async def line(place: int) -> None:
        await asyncio.sleep(took_s * place / num_calls)
        await call(place)
        for number in range(rounds):
            began = time.perf_counter()
            await call(place + num_calls * (number + 1))
            beyond.append(time.perf_counter() - began - took_s)

    await asyncio.gather(*(line(place) for place in range(num_calls)))
    return beyond


async def throughput(call: Call, n: int) -> float:
    """Requests per second with 64 in flight."""
    gate = asyncio.Semaphore(IN_FLIGHT)

    async def one(number: int) -> None:
        async with gate:
            await call(number)

    began = time.perf_counter()
    await asyncio.gather(*(one(number) for number in range(n)))
    return n / (time.perf_counter() - began)
