"""What all fuzz tests share: how much they try, hostile texts and bytes, and a bound on time.

In CI the examples are few and always the same. `make fuzz` sets TROUPE_FUZZ_* for many examples,
drawn anew in each round, and keeps those that failed.
"""

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.database import DirectoryBasedExampleDatabase
from pydantic_settings import BaseSettings, SettingsConfigDict

from troupe.conformance import texts

MAX_PARSE_S = 5.0
"""CPU seconds for one text of MAX_CHARS; a sound parser takes milliseconds."""
MAX_CHARS = 20_000


class FuzzSettings(BaseSettings):
    """``TROUPE_FUZZ_*``."""

    model_config = SettingsConfigDict(env_prefix="TROUPE_FUZZ_")

    examples: int = 0
    """Examples of each property; 0: few, and always the same ones."""
    found: Path = Path("build/fuzz/examples")
    """Folder of the examples that failed."""


_ASKED = FuzzSettings()


def fuzzed(ci_examples: int) -> Callable[[Any], Any]:
    """Settings of a property: ``ci_examples`` in CI, the asked number in ``make fuzz``."""
    shared = {"deadline": None, "suppress_health_check": list(HealthCheck), "print_blob": True}
    if not _ASKED.examples:
        return settings(max_examples=ci_examples, derandomize=True, database=None, **shared)
    found = DirectoryBasedExampleDatabase(_ASKED.found)
    phases = [Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink]
    return settings(max_examples=_ASKED.examples, database=found, phases=phases, **shared)


@contextmanager
def bounded(limit_s: float = MAX_PARSE_S) -> Iterator[None]:
    """Fails when the body takes more CPU time than ``limit_s``; ends it if it takes ten times that.

    Only for the main thread.
    """

    def end(*_: object) -> None:
        raise AssertionError(f"has no end within {10 * limit_s:.0f} s of CPU time")

    began = time.thread_time()
    before = signal.signal(signal.SIGPROF, end)
    signal.setitimer(signal.ITIMER_PROF, 10 * limit_s)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
    taken_s = time.thread_time() - began
    assert taken_s < limit_s, f"took {taken_s:.1f} s of CPU time"


@st.composite
def hostile_texts(draw: st.DrawFn, samples: tuple[str, ...] = ("",)) -> str:
    """Random text, known trouble, huge and nested text, and mutated ``samples`` of sound answers.

    No lone surrogates: a completion travels as UTF-8.
    """
    kind = draw(st.integers(0, 5))
    if kind == 0:
        return draw(st.text(st.characters(exclude_categories=["Cs"]), max_size=200))
    if kind == 1:
        return draw(st.sampled_from(list(texts.ODD.values())))[:MAX_CHARS]
    part = draw(st.sampled_from([*samples, *texts.ODD.values()]))
    rng = Random(draw(st.integers(0, 2**32)))
    if kind == 2:
        return texts.huge(part[:200], draw(st.sampled_from([1000, MAX_CHARS])))
    if kind == 3:
        opened, closed = draw(st.sampled_from(["()", "[]", "{}", "<>", '""', "``", "\\\\"]))
        depth = draw(st.integers(1, 5000))
        return opened * depth + part[:1000] + closed * draw(st.integers(0, depth))
    return texts.mutated(part, samples, rng)[:MAX_CHARS]


@st.composite
def mutated_bytes(draw: st.DrawFn, sound: st.SearchStrategy[bytes]) -> bytes:
    """Random bytes, or sound ones after cuts, flips, doublings and splices."""
    if draw(st.integers(0, 3)) == 0:
        return draw(st.binary(max_size=300))
    data = bytearray(draw(sound))
    for _ in range(draw(st.integers(0, 4))):
        at = draw(st.integers(0, len(data)))
        match draw(st.integers(0, 4)):
            case 0:
                del data[at:]
            case 1 if at < len(data):
                data[at] ^= 1 << draw(st.integers(0, 7))
            case 2:
                data[at:at] = draw(st.binary(max_size=12))
            case 3:
                data[at:at] = data[: min(at, 64)]
            case _:
                del data[at : at + draw(st.integers(1, 8))]
    return bytes(data)


def json_values(max_leaves: int = 12) -> st.SearchStrategy[Any]:
    """Anything that a JSON text can hold, odd numbers and lone surrogates among it."""
    leaves = (
        st.none()
        | st.booleans()
        | st.integers()
        | st.integers(10**30, 10**40)
        | st.floats()
        | st.text(max_size=20)
        | st.sampled_from(["\ud800", "\0", "a" * 5000, "../..", "-1", "os:system"])
    )
    return st.recursive(
        leaves,
        lambda inner: (
            st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=12), inner, max_size=4)
        ),
        max_leaves=max_leaves,
    )


def nested_json(depth: int, kind: str) -> str:
    """A JSON text that is ``depth`` deep."""
    return "[" * depth + "]" * depth if kind == "list" else '{"a":' * depth + "1" + "}" * depth
