"""Ranks of a trainer on the CPU of this machine, joined over gloo."""

from collections.abc import Iterator
from contextlib import contextmanager

from troupe.spec.job import JobSpec
from troupe_trainer.model.ranks.group import LOAD, Ranks
from troupe_trainer.model.ranks.start import Started, start


@contextmanager
def started_ranks(count: int = 2) -> Iterator[Started]:
    """Rank 0 is this process. The others have ended well when this does."""
    started = start(count, device="cpu", threads=1)
    try:
        yield started
    finally:
        started.end()
    assert [child.returncode for child in started.children] == [0] * (count - 1)


@contextmanager
def ranks_with(spec: JobSpec, count: int = 2) -> Iterator[Ranks]:
    """``count`` ranks that load the policies of ``spec``, as rank 0 is to do next."""
    with started_ranks(count) as started:
        load(spec, started.ranks)
        yield started.ranks


def load(spec: JobSpec, ranks: Ranks) -> None:
    """Have the other ranks load the policies of ``spec``."""
    ranks.tell(("", LOAD, (spec.model_dump_json(), "auto")))
