"""Judges one action of the discovery task on its own copy of the state.

A formula is worth half its score on held-out points, and 1 when it both predicts them and has the
form of the law. The team is paid for a new best. The experimenter is paid for what its points can
tell whatever the law, the theorist for a new best fit of the readings: neither for the other's
luck.
"""

from collections.abc import Callable
from dataclasses import replace

from troupe.tasks.agents import known_agent
from troupe.tasks.family import Observation, Task, Transition
from troupe_tasks.discovery import text
from troupe_tasks.discovery.design import information
from troupe_tasks.discovery.formulas import Node, parse
from troupe_tasks.discovery.judging import (
    SUCCESS_NMSE,
    TABLE_NMSE,
    error_of,
    is_same_form,
    nmse,
    score,
)
from troupe_tasks.discovery.laws import Law
from troupe_tasks.discovery.state import (
    MAX_TRIED,
    DiscoveryState,
    Tried,
    decode_state,
    encode_state,
)
from troupe_tasks.discovery.tables import Table

World = Law | Table

RETURN_BOUND = 1.0
PARTLY = 0.5
"""The most that predictions without the right form are worth."""
MIN_READINGS = 4
"""Fewer readings are fitted by anything."""
MAX_FORMULA_CHARS = 200


class DiscoveryEnvironment:
    """The pure function of the discovery task: see ``troupe.tasks.family.Environment``."""

    def __init__(
        self,
        named: Callable[[str], World],
        *,
        budget: int,
        noise: float,
        style: text.Style,
        theorist_measures: bool,
    ) -> None:
        self._named = named
        self._budget = budget
        self._noise = noise
        self._style: text.Style = style
        self._theorist_measures = theorist_measures

    def reset(self, task: Task) -> bytes:
        """The first state: nothing measured."""
        return encode_state(DiscoveryState(task.payload.decode()))

    def observe(self, state: bytes, agent: str) -> Observation:
        """What ``agent`` sees."""
        now, known = decode_state(state), _known(agent)
        found = self._named(now.key)
        return text.observation(
            found.ranges,
            now,
            known,
            self._style,
            self._budget - len(now.readings),
            theorist_measures=self._theorist_measures,
            about=found.about,
        )

    def step(self, state: bytes, agent: str, action: str) -> Transition:
        """Measure the experimenter's points, or judge the theorist's formula."""
        before = decode_state(state)
        if before.is_solved:
            nothing = dict.fromkeys(_TERMS[_known(agent)], 0.0)
            return Transition(state, 0.0, nothing, done=True, success=True)
        found = self._named(before.key)
        if _known(agent) == text.EXPERIMENTER:
            after = self._measured(before, found, action)
            terms = {"informs": after.informed - before.informed}
            new = after.readings[len(before.readings) :]
            info = {"readings": [[*p, m] for p, m in new]}
            return Transition(encode_state(after), 0.0, terms, done=False, success=False, info=info)
        if self._theorist_measures:
            before = self._measured(before, found, action)
        return self._judged(before, found, action)

    def _measured(self, before: DiscoveryState, found: World, action: str) -> DiscoveryState:
        """New points cost one reading each; a point that was measured costs nothing."""
        readings = dict(before.readings)
        for point in text.read_points(action, found.ranges):
            settled = found.settled(point)
            place = tuple(settled[name] for name in found.names)
            if place not in readings and len(readings) < self._budget:
                readings[place] = found.reading(settled, self._noise)
        points = [dict(zip(found.names, place, strict=True)) for place in readings]
        informed = max(before.informed, information(points, found.ranges))
        return replace(before, readings=tuple(readings.items()), informed=informed)

    def _judged(self, before: DiscoveryState, found: World, action: str) -> Transition:
        written = text.read_formula(action)
        node = parse(written, found.names)
        own_readings = [
            (dict(zip(found.names, place, strict=True)), m) for place, m in before.readings
        ]
        if node is None:
            terms = {"fits": 0.0}
            info = {"formula": written[:MAX_FORMULA_CHARS], "failure": "format"}
            return Transition(encode_state(before), 0.0, terms, False, False, info)
        worth, error, form = judged(node, found)
        own = score(nmse(node, own_readings)) if len(own_readings) >= MIN_READINGS else 0.0
        tried = Tried(written[:MAX_FORMULA_CHARS], round(own, 2), int(10 * score(error)))
        after = replace(
            before,
            best=max(before.best, worth),
            best_own=max(before.best_own, own),
            tried=(*before.tried, tried)[-MAX_TRIED:],
        )
        return Transition(
            encode_state(after),
            after.best - before.best,
            {"fits": after.best_own - before.best_own},
            done=after.is_solved,
            success=after.is_solved,
            info={"formula": tried.formula, "error": min(error, 1e9), "same_form": form},
        )


def judged(node: Node, found: World) -> tuple[float, float, bool]:
    """A formula's worth, its error on hidden points, and whether it has the law's form.

    Of a table the form is not known: a small error alone has to do.
    """
    error = error_of(node, found.hidden)
    partly = PARTLY * int(10 * score(error)) / 10
    if found.formula is None:
        return (1.0 if error < TABLE_NMSE else partly), error, False
    form = error < SUCCESS_NMSE and is_same_form(node, found.formula, found.hidden)
    return (1.0 if form else partly), error, form


_TERMS = {text.EXPERIMENTER: ("informs",), text.THEORIST: ("fits",)}


def _known(agent: str) -> str:
    return known_agent(agent, text.AGENTS, task="Discovery")
