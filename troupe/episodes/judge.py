"""Judges: the first state of a task, and the outcome of each action.

Shared by the env service and in-process environments, which differ in threads, deadlines and
seals. Never keeps a state.
"""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar, cast

from troupe.episodes.ports import Outcome, Start
from troupe.tasks.family import Environment, Observation, Task, Transition

_T = TypeVar("_T")
Seal = Callable[[bytes], bytes]
"""A state as it is given out."""


def without_exit(work: Callable[[], _T]) -> _T:
    """``work()``, whose ``sys.exit`` is an error of its code: it would end the event loop."""
    try:
        return work()
    except SystemExit as ended:
        raise exit_error(ended) from ended


def exit_error(ended: SystemExit) -> RuntimeError:
    """``ended`` as an error at the same line."""
    return RuntimeError(f"SystemExit: {ended}").with_traceback(ended.__traceback__)


def first_state(
    environment: Environment, task: Task, agents: Sequence[str], *, seal: Seal = bytes
) -> Start:
    """The first state of ``task``, and what each of ``agents`` sees in it."""
    state = environment.reset(task)
    return Start(task.id, seal(state), observations_of(environment, state, agents))


def outcomes(
    environment: Environment,
    state: bytes,
    agent: str,
    actions: Sequence[str],
    observe: Sequence[str],
    *,
    seal: Seal = bytes,
) -> list[Outcome]:
    """Each action's outcome on its own copy of ``state``, and what ``observe`` see after it."""
    return [
        _outcome(environment, environment.step(state, agent, action), observe, seal)
        for action in actions
    ]


def observations_of(
    environment: Environment, state: bytes, agents: Sequence[str]
) -> Mapping[str, Observation]:
    """What each of ``agents`` sees in ``state``."""
    return {agent: environment.observe(state, agent) for agent in agents}


def _outcome(
    environment: Environment, done: Transition, observe: Sequence[str], seal: Seal
) -> Outcome:
    """``info`` values that JSON cannot hold are written as text, and sets as sorted lists of it."""
    return Outcome(
        state=seal(done.state),
        team_reward=_number(done.team_reward),
        local_rewards={name: _number(paid) for name, paid in done.local_rewards.items()},
        is_done=done.done,
        is_success=done.success,
        info_json=json.dumps(dict(done.info), separators=(",", ":"), default=_as_text),
        observations=observations_of(environment, done.state, observe),
    )


def _number(paid: object) -> float:
    """What a task paid; NaN, which whoever uses it refuses, where that is no number."""
    try:
        return math.nan if isinstance(paid, str | bytes) else float(cast("float", paid))
    except (TypeError, ValueError, OverflowError):
        return math.nan


def _as_text(value: object) -> object:
    # The text of a set has another order in each process.
    return sorted(map(str, value)) if isinstance(value, set | frozenset) else str(value)
