"""Derives seeds from names, never from time or order."""

import hashlib


def derive_seed(seed: int, *parts: str | int) -> int:
    """A 63-bit seed from the job seed and a path such as (step, task, agent, turn, sample).

    Example: ``derive_seed(7, "train", 12, "planner", 0)``.
    """
    text = "\x1f".join([str(seed), *(f"{type(p).__name__}:{p}" for p in parts)])
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest()) >> 1
