"""Which episode the running code plays, for ports that keep an episode at one replica.

Owns the name alone: a port that ignores it is as right, because an environment is pure.
"""

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar

_episode: ContextVar[str] = ContextVar("played_episode", default="")


@contextmanager
def playing(episode: str) -> Generator[None]:
    """Name the episode for the block, including the asyncio tasks that it starts."""
    token = _episode.set(episode)
    try:
        yield
    finally:
        _episode.reset(token)


def played_episode() -> str:
    """The episode's name; "" where none is played."""
    return _episode.get()
