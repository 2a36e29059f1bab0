"""Programs under test: a family on one of the shapes, and ways to play it."""

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

from troupe import SimpleTask, Transition
from troupe.sandbox.sandbox import Sandbox
from troupe.tasks.registry import load_family
from troupe.tasks.simple import state_value
from troupe_tasks.programs.calls import ProgramRun
from troupe_tasks.programs.environment import ProgramEnvironment
from troupe_tasks.programs.family import Program
from troupe_tasks.programs.judge import ScoredCall

TEAMS = Path(__file__).with_name("teams")
SEATS: Mapping[str, Any] = {
    "solver": {"system": "You are the solver", "judged": True},
    "verifier": {"system": "You are the verifier"},
}


class Additions(SimpleTask):
    """What is a + b?"""

    agents = ("solver",)
    local_terms = {"solver": {}}  # noqa: RUF012

    def draw(self, rng: Random) -> list[int]:
        return [rng.randrange(1000), rng.randrange(1000)]

    def observe(self, state: list[int], agent: str) -> str:
        return f"What is {state[0]} + {state[1]}?"

    def step(self, state: list[int], agent: str, action: str) -> Transition:
        is_right = action.strip() == str(sum(state))
        return self.transition(state, float(is_right), done=True, success=is_right)

    def demonstrate(self, state: bytes, agent: str, rng: Random) -> str:
        return str(sum(state_value(state)))


def late(call: ScoredCall) -> dict[str, float]:
    """A score that takes longer than the client of ``shapes:falls_back`` waits."""
    threading.Event().wait(2.5)
    return {"late": 1.0}


def params_of(shape: str, **changes: Any) -> dict[str, Any]:
    return {
        "program": f"shapes:{shape}",
        "folder": str(TEAMS),
        "judge": {"name": "program_world:Additions", "agent": "solver"},
        "seats": SEATS,
        "max_calls": 8,
        "idle_s": 20.0,
        **changes,
    }


@contextmanager
def program(
    shape: str, *, in_sandbox: Sandbox | None = None, **changes: Any
) -> Iterator[ProgramEnvironment]:
    """The environment of the program ``shapes:<shape>``."""
    family = load_family("program", params_of(shape, **changes))
    assert isinstance(family, Program)
    environment = family.environment_in(in_sandbox) if in_sandbox else family.environment()
    environment.task = family.taskset().task  # type: ignore[attr-defined]
    try:
        yield environment
    finally:
        environment.close()


def begun(environment: ProgramEnvironment, index: int = 0) -> bytes:
    return environment.reset(environment.task("train", index))  # type: ignore[attr-defined]


def asked(environment: ProgramEnvironment, state: bytes) -> list[str]:
    """Agents that have something to decide."""
    return [agent for agent in SEATS if environment.observe(state, agent)]


def played(environment: ProgramEnvironment, index: int, rng: Random) -> list[Transition]:
    """An episode: the first agent asked says a number."""
    state, done = begun(environment, index), []
    while agents := asked(environment, state):
        done.append(environment.step(state, agents[0], str(rng.randrange(4))))
        state = done[-1].state
        if done[-1].done:
            break
    return done


def gave_up(environment: ProgramEnvironment) -> ProgramRun:
    """The only run, once its client has given up a call that it made."""
    worlds: Any = environment.worlds
    world = [*worlds._idle.values(), *(w for kept in worlds._kept.values() for w in kept)][0]
    run: ProgramRun = world._run
    with run.changed:
        assert run.changed.wait_for(
            lambda: any(call.text is None and not call.num_open for call in run.calls), 20.0
        )
    return run


def forget(environment: ProgramEnvironment) -> None:
    """Lose every live run, as when the process that holds them dies."""
    environment.worlds.close()


def shown(state: bytes) -> dict[str, Any]:
    return json.loads(state)
