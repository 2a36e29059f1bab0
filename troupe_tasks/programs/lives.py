"""Live programs, each filed under the record that it has reached; others are reached by replay.

Owns what a replay that differs is told: which call, and what differed.
"""

from collections.abc import Sequence
from typing import Any

from troupe.errors import ProgramDivergedError, UnavailableError
from troupe.runtime.faults import reached
from troupe.runtime.telemetry import metrics
from troupe_tasks.adapters.pool import Worlds
from troupe_tasks.adapters.record import Record, next_trace
from troupe_tasks.adapters.world import Moment, World
from troupe_tasks.programs.prompts import told
from troupe_tasks.programs.world import ProgramWorld

SHOWN_CHARS = 60


class ProgramWorlds(Worlds):
    """See ``Worlds``: at most ``max_live`` idle programs; one that died is replayed.

    Programs that may not be repeated are all kept, each for the record that it alone has reached:
    their number is bounded when they start.
    """

    def __init__(self, make: Any, *, max_live: int, is_replayed: bool) -> None:
        super().__init__(make, max_live=max_live)
        self._is_replayed = is_replayed
        self._kept: dict[str, list[World]] = {}

    def begin(self, seed: int) -> tuple[World, Moment]:
        """See ``Worlds.begin``; a run that may not be repeated and that nobody has answered yet is
        one at its start: a caller that asks again, since the answer was late, gets the run that it
        began."""
        if not self._is_replayed:
            with self._lock:
                for worlds in self._kept.values():
                    for world in worlds:
                        if isinstance(world, ProgramWorld) and (first := world.first_moment(seed)):
                            worlds.remove(world)
                            return world, first
        return super().begin(seed)

    def taken(self, record: Record) -> World | None:
        """See ``Worlds.taken``."""
        if self._is_replayed:
            return super().taken(record)
        with self._lock:
            worlds = self._kept.get(_place(record), [])
            world = worlds.pop(0) if worlds else None
            if not worlds:
                self._kept.pop(_place(record), None)
        return world

    def keep(self, record: Record, world: World) -> None:
        """See ``Worlds.keep``."""
        if self._is_replayed:
            super().keep(record, world)
        elif record.is_done:
            world.close()
        else:
            with self._lock:
                kept = {place: _open(worlds) for place, worlds in self._kept.items()}
                self._kept = {place: worlds for place, worlds in kept.items() if worlds}
                self._kept.setdefault(_place(record), []).append(world)

    def close(self) -> None:
        """See ``Worlds.close``."""
        super().close()
        with self._lock:
            closing = [world for worlds in self._kept.values() for world in worlds]
            self._kept.clear()
        for world in closing:
            world.close()

    def at(self, record: Record, agent: str | None = None) -> World:
        """A live program that waits at ``record`` for ``agent``; the caller owns it.

        Raises:
            ProgramDivergedError: a replay asked something else than the program asked before.
            ProgramRunDiedError, ProgramRunTimeoutError: ``replay: never``, and the run is over.
            UnavailableError: ``replay: never``, and the run is not here.
        """
        world = self.taken(record)
        if isinstance(world, ProgramWorld):
            prompts = record.prompts
            if agent is not None and not self._is_replayed:  # what others gave up is no loss
                prompts = {agent: prompts[agent]}
            if world.asks(prompts) or (not self._is_replayed and world.comes_back(prompts)):
                return world
            world.close()
            if record.history and not self._is_replayed:
                raise world.lost()
        if record.history and not self._is_replayed:
            raise UnavailableError(
                "the run of this episode is not in this process: nobody answered it in its time "
                "(answer_s), or its env service was replaced; replay: never forbids to repeat it, "
                "so the episode is played again. Use an algorithm over whole runs (grpo)"
            )
        return self._replayed(record)

    def _replayed(self, record: Record) -> World:
        world, moment = self.begin(record.seed)
        try:
            trace = next_trace("", moment)
            for agent, action in record.history:
                if moment.is_done or agent not in moment.prompts:
                    break
                self.num_replayed += 1
                moment = world.act(agent, action)
                trace = next_trace(trace, moment)
                reached("env.program_replayed")
            if trace != record.trace:
                raise _diverged(record, moment)
        except BaseException:
            world.close()
            raise
        return world


def _place(record: Record) -> str:
    """Runs that were answered alike are told apart by what they asked."""
    return f"{record.key} {record.trace}"


def _open(worlds: Sequence[World]) -> list[World]:
    """Those that nobody has closed, as their time was over."""
    return [world for world in worlds if not (isinstance(world, ProgramWorld) and world.is_closed)]


def _diverged(record: Record, moment: Moment) -> ProgramDivergedError:
    metrics.ENV_PROGRAM_DIVERGED.inc()
    return ProgramDivergedError(
        f"this program is not repeatable: answered the same, it asked something else at "
        f"{_difference(record, moment)}. Remove what changes from run to run (a clock, a random "
        "number, an unordered set), or mask it in prompts by `ignore` of that seat"
    )


def _difference(record: Record, moment: Moment) -> str:
    """Where the replay that ended in ``moment`` left the way of ``record``."""
    then: Sequence[Sequence[str]] = record.note.get("answered", ())
    now: Sequence[Sequence[str]] = moment.info.get("answered", ())
    for number, (was, has) in enumerate(zip(then, now, strict=False), start=1):
        if list(was) != list(has):
            return f"call {number}, of agent {was[0]} (its text is no longer known)"
    number = min(len(then), len(now)) + 1
    if len(now) < len(then):
        who = ", ".join(sorted(moment.prompts)) or "nobody"
        return f"call {number}: agent {then[len(now)][0]} was asked, now {who}"
    if sorted(record.prompts) != sorted(moment.prompts):
        was, has = (
            ", ".join(sorted(prompts)) or "nobody" for prompts in (record.prompts, moment.prompts)
        )
        return f"call {number}: of agent {was} then, of {has} now"
    for agent in sorted(record.prompts):
        if record.prompts[agent] != moment.prompts[agent]:
            before, after = _apart(told(record.prompts[agent]), told(moment.prompts[agent]))
            return f"call {number}, of agent {agent}: {before!r} then, {after!r} now"
    return f"call {number}: the same prompts, other rewards"


def _apart(was: str, has: str) -> tuple[str, str]:
    """Both texts around the first character that differs."""
    at = next((i for i, (a, b) in enumerate(zip(was, has, strict=False)) if a != b), None)
    at = min(len(was), len(has)) if at is None else at
    begin = max(0, at - SHOWN_CHARS // 2)
    return was[begin : begin + SHOWN_CHARS], has[begin : begin + SHOWN_CHARS]
