"""Holds rollouts of environments that ask a model: a request waits for an answer from outside.

One rollout moves at a time, and each has a state of the global random generators of its own, so
that what the others do changes nothing in it.
"""

import asyncio
import hashlib
import importlib
import json
import random
import sys
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from serve import MachineError

MAX_ROUNDS = 10_000


@dataclass
class Asked:
    """A request of an agent that waits."""

    agent: str
    body: dict[str, Any]
    answer: "asyncio.Future[dict[str, Any]]"


@dataclass
class Rollout:
    """One life of an environment."""

    asked: dict[int, Asked] = field(default_factory=dict)
    num_asked: int = 0
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    task: Any = None
    generators: tuple[Any, Any] = (None, None)

    async def ask(self, agent: str, body: dict[str, Any]) -> dict[str, Any]:
        """A chat completion for ``body``, once somebody gives it."""
        self.num_asked += 1
        number = self.num_asked
        future: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        # A copy, as text: the caller may go on writing to its messages.
        self.asked[number] = Asked(agent, json.loads(json.dumps(body, default=str)), future)
        self.changed.set()
        try:
            return await future
        finally:
            self.asked.pop(number, None)


class Rollouts:
    """Rollouts of one environment by number; ``play`` gives how one ended."""

    def __init__(self, play: Callable[[Rollout, Any], Coroutine[Any, Any, dict[str, Any]]]) -> None:
        self._play = play
        self._lives: dict[int, Rollout] = {}
        self._num_lives = 0
        self.loop = asyncio.new_event_loop()

    def start(self, row: Any, seed: int) -> dict[str, Any]:
        """Begin a rollout, up to its first request."""
        life = Rollout(generators=seeded(seed))
        self._num_lives += 1
        self._lives[self._num_lives] = life

        async def begun() -> None:
            life.task = asyncio.create_task(self._play(life, row))
            life.task.add_done_callback(lambda _: life.changed.set())

        return {"life": self._num_lives, **self._moved(life, begun)}

    def answer(self, life: int, number: int, document: dict[str, Any]) -> dict[str, Any]:
        """Answer a request that waits, and go on to the next one or to the end."""
        held = self._lives.get(life)
        if held is None or number not in held.asked:
            raise MachineError(f"rollout {life} has no request {number} that waits")

        async def answered() -> None:
            asked = held.asked.pop(number)
            held.changed.clear()
            asked.answer.set_result(document)

        return self._moved(held, answered)

    def drop(self, life: int) -> dict[str, Any]:
        """Forget a rollout."""
        held = self._lives.pop(life, None)
        if held is not None and not held.task.done():
            held.task.cancel()
            self.loop.run_until_complete(asyncio.wait([held.task], timeout=5))
        return {}

    def _moved(self, life: Rollout, step: Callable[[], Awaitable[None]]) -> dict[str, Any]:
        """What the rollout shows after ``step``: the requests that wait, or how it ended."""
        outer = _drawn()
        install(life.generators)
        try:
            self.loop.run_until_complete(_settled(life, step))
        finally:
            life.generators = _drawn()
            install(outer)
        if life.task.done():
            return {"end": life.task.result()}
        asked = {number: [a.agent, a.body] for number, a in sorted(life.asked.items())}
        return {"asked": asked}


async def _settled(life: Rollout, step: Callable[[], Awaitable[None]]) -> None:
    await step()
    await life.changed.wait()
    life.changed.clear()
    # Requests made together arrive together.
    for _ in range(20):
        await asyncio.sleep(0)


def seeded(seed: int) -> tuple[Any, Any]:
    """The states that Python's and NumPy's global generators have after this seed."""
    numpy = sys.modules.get("numpy")
    drawn = None if numpy is None else numpy.random.RandomState(seed % 2**32).get_state()
    return random.Random(seed).getstate(), drawn


def _drawn() -> tuple[Any, Any]:
    numpy = sys.modules.get("numpy")
    return random.getstate(), None if numpy is None else numpy.random.get_state()


def install(generators: tuple[Any, Any]) -> None:
    """Put the global generators into these states."""
    random.setstate(generators[0])
    numpy = sys.modules.get("numpy")
    if numpy is not None and generators[1] is not None:
        numpy.random.set_state(generators[1])


def key_of(row: Any) -> str:
    """What is equal for equal rows."""
    text = json.dumps(row, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def rows_in(file: Path) -> list[Any]:
    """The rows of a JSON Lines file, as ``troupe.data.rows`` reads it."""
    # str.splitlines would also end a row at U+2028, which JSON may hold as it is.
    with file.open(encoding="utf-8-sig") as lines:
        return [json.loads(line) for line in lines if line.strip()]


def serve_local_rows(files: dict[str, str]) -> None:
    """Let ``datasets.load_dataset`` read these ids from files of ours instead of the hub."""
    if not files:
        return
    try:
        datasets: Any = importlib.import_module("datasets")
    except ImportError:
        return  # whoever needs it says so
    load: Any = datasets.load_dataset

    def local(path: str, *args: Any, **kwargs: Any) -> Any:
        if path not in files:
            return load(path, *args, **kwargs)
        whole = datasets.Dataset.from_list(rows_in(Path(files[path])))
        split = kwargs.get("split")
        return whole if split else datasets.DatasetDict({"train": whole, "test": whole})

    datasets.load_dataset = local
