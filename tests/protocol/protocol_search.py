"""Exhaustive search of a small state machine: every order of events, and the shortest bad one.

Owns the search alone; what a state is, what may happen and what must hold are the models'.
"""

from collections import deque
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

S = TypeVar("S", bound=Hashable)


@dataclass(frozen=True)
class Model(Generic[S]):
    """``wrong`` says what an event broke, or nothing.

    ``is_done`` is where the job ended well; ``must_end`` is where it still has to be able to.
    """

    initial: S
    events: Callable[[S], Iterator[tuple[str, S]]]
    wrong: Callable[[S, str, S], str]
    is_done: Callable[[S], bool]
    must_end: Callable[[S], bool]


@dataclass(frozen=True)
class Found:
    """What a search saw: ``problem`` is empty when everything held; ``trace`` leads to it."""

    num_states: int
    problem: str
    trace: tuple[str, ...] = ()


def search(model: Model[S], *, limit: int = 2_000_000) -> Found:
    """Breadth first, so the first problem has the shortest trace; then whether all can still end.

    Raises:
        RuntimeError: there are more than ``limit`` states; make the model smaller.
    """
    came_from: dict[S, tuple[S, str] | None] = {model.initial: None}
    before: dict[S, list[S]] = {model.initial: []}
    queue = deque([model.initial])
    while queue:
        state = queue.popleft()
        for event, after in model.events(state):
            if problem := model.wrong(state, event, after):
                trace = (*_trace(came_from, state), event)
                return Found(len(came_from), problem, trace)
            if after not in came_from:
                if len(came_from) >= limit:
                    raise RuntimeError(f"more than {limit} states; make the model smaller")
                came_from[after] = (state, event)
                before[after] = []
                queue.append(after)
            before[after].append(state)
    return _stuck(model, came_from, before) or Found(len(came_from), "")


def _stuck(
    model: Model[S], came_from: dict[S, tuple[S, str] | None], before: dict[S, list[S]]
) -> Found | None:
    """The first state from which no sequence of events leads to the end."""
    alive = {state for state in came_from if model.is_done(state)}
    queue = deque(alive)
    while queue:
        for earlier in before[queue.popleft()]:
            if earlier not in alive:
                alive.add(earlier)
                queue.append(earlier)
    for state in came_from:
        if state not in alive and model.must_end(state):
            return Found(len(came_from), "it can never end", _trace(came_from, state))
    return None


def _trace(came_from: dict[S, tuple[S, str] | None], state: S) -> tuple[str, ...]:
    events: list[str] = []
    step = came_from[state]
    while step is not None:
        events.append(step[1])
        step = came_from[step[0]]
    return tuple(reversed(events))
