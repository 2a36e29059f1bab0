"""A pool of live environments, each filed under the record that it has reached.

A cache and nothing more: a record whose environment is not here, or is in another process, is
reached by replay. So any pod can serve any step; losing the pool costs time.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable

from troupe.errors import InvalidArgumentError
from troupe_tasks.adapters.record import Record, next_trace
from troupe_tasks.adapters.world import Moment, World


class Worlds:
    """At most ``max_live`` idle environments; safe to use from several threads."""

    def __init__(self, make: Callable[[], World], *, max_live: int = 8) -> None:
        self._make = make
        self._max_live = max_live
        self._lock = threading.Lock()
        self._idle: OrderedDict[str, World] = OrderedDict()
        self.num_replayed = 0

    def begin(self, seed: int) -> tuple[World, Moment]:
        """A live environment at the start of an episode; the caller owns it."""
        world = self._make()
        try:
            return world, world.reset(seed)
        except BaseException:
            world.close()
            raise

    def at(self, record: Record) -> World:
        """A live environment that stands at ``record``; the caller owns it.

        Raises InvalidArgumentError when a replay shows something else than was shown before.
        """
        world = self.taken(record)
        return world if world is not None else self._replayed(record)

    def taken(self, record: Record) -> World | None:
        """The idle environment that stands at ``record``, which the caller now owns."""
        with self._lock:
            return self._idle.pop(record.key, None)

    def keep(self, record: Record, world: World) -> None:
        """Take back an environment that stands at ``record``; one whose episode is over is closed.

        None is reset and used again: what an episode leaves behind must not reach the next one.
        """
        closing: list[World] = []
        with self._lock:
            if record.is_done or record.key in self._idle:
                closing.append(world)
            else:
                self._idle[record.key] = world
            while len(self._idle) > self._max_live:
                closing.append(self._idle.popitem(last=False)[1])
        for old in closing:
            old.close()

    def close(self) -> None:
        """Close everything that is idle."""
        with self._lock:
            closing = list(self._idle.values())
            self._idle.clear()
        for world in closing:
            world.close()

    def _replayed(self, record: Record) -> World:
        world, moment = self.begin(record.seed)
        try:
            if record.saved is not None:
                world.restore(record.saved)
                return world
            trace = next_trace("", moment)
            for agent, action in record.history:
                self.num_replayed += 1
                trace = next_trace(trace, world.act(agent, action))
        except BaseException:
            world.close()
            raise
        if trace != record.trace:
            world.close()
            raise InvalidArgumentError(
                f"replaying {len(record.history)} actions after seed {record.seed} gave "
                "other observations than the first time, so this environment is not determined by "
                "its seed and cannot be trained on; fix its randomness, or give functions that "
                "save and restore its state where the adapter takes them"
            )
        return world
