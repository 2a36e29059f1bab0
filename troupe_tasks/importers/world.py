"""One live rollout of an environment in a guest process, as the adapters' pool keeps them."""

import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from troupe.errors import InvalidArgumentError, UnavailableError
from troupe.wire import chat
from troupe.wire.dialect import read_answer
from troupe.wire.request import CallKey, ModelRequest
from troupe_tasks.adapters.world import Moment
from troupe_tasks.importers.process import GuestProcess

OWN, TEAM = "own", "team"
"""Terms: what the environment paid an agent; what it paid all of them."""

CLOSE_S = 5.0


@dataclass(frozen=True, slots=True)
class Row:
    """One task of an environment: its pool there, its place in it, and what its content hashes to.

    Example: ``Row("train", 3, "9f0c...")``.
    """

    pool: str
    index: int
    key: str


@dataclass(frozen=True, slots=True)
class Bounds:
    """What bounds a rollout. ``success`` is the team's reward from which it counts as one."""

    cpu_s: float
    run_s: float
    success: float
    terms: Mapping[str, Sequence[str]]


class Guests:
    """Processes that take turns in beginning rollouts."""

    def __init__(self, processes: Sequence[GuestProcess]) -> None:
        self.processes = tuple(processes)
        self._turns = itertools.cycle(self.processes)

    def next(self) -> GuestProcess:
        """The process for another rollout."""
        return next(self._turns)

    def close(self) -> None:
        """End them all."""
        for process in self.processes:
            process.close()


class RolloutWorld:
    """See ``troupe_tasks.adapters.world.World``; prompts are JSON lists of (role, text)."""

    def __init__(self, guest: GuestProcess, rows: Sequence[Row], bounds: Bounds) -> None:
        self._guest = guest
        self._rows = rows
        self._bounds = bounds
        self._life = 0
        self._generation = -1
        self._asked: dict[str, tuple[int, ModelRequest]] = {}
        self._num_answers = 0

    def reset(self, seed: int) -> Moment:
        row = self._rows[seed]
        shown = self._ask("start", pool=row.pool, index=row.index, seed=seed)
        self._life, self._generation = shown["life"], self._guest.generation
        return self._moment(shown)

    def act(self, agent: str, action: Any) -> Moment:
        if self._generation != self._guest.generation:
            raise UnavailableError("the process of this rollout has ended; it begins again")
        number, request = self._asked[agent]
        answer = read_answer(str(action), request.tools)
        document = chat.document(request, CallKey("call", number), answer)
        self._num_answers += 1
        return self._moment(self._ask("answer", life=self._life, number=number, document=document))

    def save(self) -> str | None:
        return None

    def restore(self, saved: str) -> None:
        raise NotImplementedError

    def close(self) -> None:
        if self._generation == self._guest.generation:
            self._guest.tell("drop", life=self._life, timeout_s=CLOSE_S)

    def _ask(self, op: str, **arguments: Any) -> Any:
        bounds = self._bounds
        return self._guest.ask(op, cpu_s=bounds.cpu_s, timeout_s=bounds.run_s, **arguments)

    def _moment(self, shown: Mapping[str, Any]) -> Moment:
        self._asked = {}
        if "end" in shown:
            return self._end(shown["end"])
        for number, (agent, body) in shown["asked"].items():
            self._asked.setdefault(agent, (int(number), chat.read(body)))
        prompts = {
            agent: json.dumps(request.turns, ensure_ascii=False)
            for agent, (_, request) in self._asked.items()
        }
        return Moment(prompts, {TEAM: 0.0}, False, False, {})

    def _end(self, end: Mapping[str, Any]) -> Moment:
        failure = end.get("failure")
        if not self._num_answers:
            raise InvalidArgumentError(
                f"the environment ended before it asked anything: {failure or 'no model was asked'}"
            )
        if failure is not None:
            return Moment({}, {TEAM: 0.0}, True, False, {"failure": failure})
        paid: dict[str, float] = {TEAM: sum(float(a["total"]) for a in end["agents"].values())}
        for agent, told in end["agents"].items():
            paid[f"{agent}/{OWN}"] = float(told["total"])
            known = self._bounds.terms.get(agent, ())
            paid |= {f"{agent}/{n}": float(v) for n, v in told["terms"].items() if n in known}
        info = {"rewards": {name: told["terms"] for name, told in end["agents"].items()}}
        if end.get("stop"):
            info["stop"] = end["stop"]
        return Moment({}, paid, True, paid[TEAM] >= self._bounds.success, info)
