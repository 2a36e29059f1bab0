"""Every way in which a program can end is counted by the process that judges."""

from random import Random
from typing import Any

import pytest
from program_world import SEATS, begun, played, program

from troupe.errors import TroupeError
from troupe.runtime.telemetry import metrics
from troupe.tasks.program_ends import ANSWERED, OF_OTHERS, OF_TEAM

IN_A_HURRY = {"idle_s": 1.5, "warm": False}
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    ANSWERED: ("pair", {}),
    "program_error": ("raises", {}),
    "too_many_calls": ("loops", {"max_calls": 3}),
    "too_many_calls_at_once": ("floods_after_an_answer", {"max_waiting": 4, "warm": False}),
    "prompt_too_long": ("grows", {"max_prompt_bytes": 2048, "max_calls": 30}),
    "state_too_big": ("loops", {"max_calls": 512, "max_answer_chars": 600_000}),
    "bad_call": ("strange", {}),
    "no_call": ("raises_at_once", {}),
    "diverged": ("clock", {}),
    "timeout": ("hangs", IN_A_HURRY),
    "died": ("dies", IN_A_HURRY),
}


def test_ends_when_listed_then_each_has_a_case() -> None:
    assert {*CASES} == {ANSWERED, *OF_TEAM, *OF_OTHERS}


def _counts() -> dict[str, float]:
    return {end: metrics.ENV_PROGRAM_RUNS.labels(end)._value.get() for end in CASES}


@pytest.mark.parametrize("end", CASES)
def test_program_when_it_ends_then_its_end_is_counted_once(end: str) -> None:
    shape, changes = CASES[end]
    before = _counts()
    with program(shape, seats=SEATS, **changes) as environment:
        try:
            if end == "diverged":
                state = environment.step(begun(environment), "solver", "7").state
                environment.step(state, "verifier", "ok")
                environment.step(state, "verifier", "no")
            elif end in ("too_many_calls_at_once", "state_too_big"):
                state = begun(environment)
                text = "12" if end == "too_many_calls_at_once" else "x" * 600_000
                while not (step := environment.step(state, "solver", text)).done:
                    state = step.state
            else:
                played(environment, 0, Random(0))
            assert end not in OF_OTHERS
        except TroupeError as error:
            assert error.reason == f"PROGRAM_{end.upper()}"
    wanted = {end: 1, **({ANSWERED: 1} if end == "diverged" else {})}
    assert {e: n - before[e] for e, n in _counts().items() if n != before[e]} == wanted
