"""Runs that are never repeated, and agents that are known by their keys."""

import os
import signal
import threading
from typing import Any

import pytest
from program_world import SEATS, begun, gave_up, params_of, program

from troupe.episodes.build import load_parts
from troupe.errors import (
    InvalidArgumentError,
    OverloadedError,
    ProgramRunDiedError,
    ProgramRunTimeoutError,
)
from troupe.spec.issues import SpecInvalidError
from troupe.spec.job import JobSpec
from troupe_tasks.programs import world
from troupe_tasks.programs.activity import RunProcess
from troupe_tasks.programs.environment import ProgramEnvironment
from troupe_tasks.programs.world import ProgramWorld

KEYED: dict[str, Any] = {
    "seats": {"coder": {"key": True}, "tester": {"key": True}},
    "replay": "never",
}


def lives(environment: ProgramEnvironment) -> list[ProgramWorld]:
    """The runs that are under way and idle."""
    kept: dict[str, list[ProgramWorld]] = vars(environment.worlds)["_kept"]
    return [world for worlds in kept.values() for world in worlds]


def process_of(environment: ProgramEnvironment) -> RunProcess:
    """The process of the only run."""
    process: Any = vars(lives(environment)[0])["_process"]
    return process


def test_agents_when_their_keys_tell_them_apart_then_each_is_asked_in_its_turn() -> None:
    with program("keyed", **KEYED) as environment:
        state, asked = begun(environment), []
        for answer in ("one", "two", "three"):
            asked += [agent for agent in ("coder", "tester") if environment.observe(state, agent)]
            step = environment.step(state, asked[-1], answer)
            state = step.state
        assert asked == ["coder", "tester", "coder"]
        assert (step.done, step.info["answer"]) == (True, "one")


def test_runs_when_they_are_answered_alike_then_each_lives_on() -> None:
    with program("pair", replay="never") as environment:
        first = begun(environment)
        states = [environment.step(first, "solver", "7").state for _ in range(3)]
        assert states[0] == states[1] == states[2]
        assert len(lives(environment)) == 3
        ends = [environment.step(state, "verifier", "fine") for state in states]
        assert all(end.done for end in ends)
        assert lives(environment) == []


def test_run_when_it_is_begun_again_before_any_answer_then_it_is_the_same_run() -> None:
    with program("pair", replay="never", max_live=1, start_s=2.0, start="fresh") as environment:
        first, again = begun(environment), begun(environment)
        assert first == again
        assert len(lives(environment)) == 1
        assert not environment.step(again, "solver", "7").done


def test_runs_when_there_are_too_many_then_one_more_is_tried_again_and_none_is_ended() -> None:
    with program("pair", replay="never", max_live=2, start_s=2.0, start="fresh") as environment:
        states = [begun(environment, index) for index in range(2)]
        with pytest.raises(OverloadedError, match="max_live"):
            begun(environment, 2)
        for state in states:
            assert not environment.step(state, "solver", "7").done


def test_run_when_its_process_is_killed_then_its_episode_is_over_and_another_may_begin() -> None:
    with program("pair", replay="never", max_live=1) as environment:
        state = environment.step(begun(environment), "solver", "7").state
        process = process_of(environment)
        os.kill(process.pid, signal.SIGKILL)
        with pytest.raises(ProgramRunDiedError):
            environment.step(state, "verifier", "fine")
        state = environment.step(begun(environment), "solver", "7").state
        assert environment.step(state, "verifier", "fine").done


def test_run_when_it_dies_by_itself_then_nobody_is_paid() -> None:
    with program("dies", replay="never") as environment, pytest.raises(ProgramRunDiedError):
        environment.step(begun(environment), "solver", "one")


def test_run_when_it_hangs_after_an_answer_then_its_episode_is_over() -> None:
    with (
        program("hangs", replay="never", idle_s=1.0) as environment,
        pytest.raises(ProgramRunTimeoutError, match="idle_s"),
    ):
        environment.step(begun(environment), "solver", "one")


def test_run_when_it_gave_the_answered_call_up_then_its_episode_is_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(world, "COME_BACK_S", 0.5)
    with program("votes", replay="never", keep_alive_s=9.0) as environment:
        state = environment.step(begun(environment), "verifier", "go").state
        run = gave_up(environment)
        with pytest.raises(ProgramRunDiedError, match="gave its call up"):
            environment.step(state, "solver", "42")
        assert run.is_void


def test_run_when_another_seats_call_was_given_up_then_it_goes_on() -> None:
    with program("votes", replay="never", keep_alive_s=9.0) as environment:
        state = environment.step(begun(environment), "verifier", "go").state
        gave_up(environment)
        assert environment.step(state, "verifier", "yes").info["answer"] == "none yes"


def test_run_when_its_call_is_given_up_while_the_answer_is_scored_then_it_is_not_paid() -> None:
    seats = {**SEATS, "solver": {"system": "You are the solver", "terms": {"late": 0.5}}}
    more: dict[str, Any] = {"seats": seats, "score": "program_world:late", "keep_alive_s": 9.0}
    with (
        program("falls_back", replay="never", **more) as environment,
        pytest.raises(ProgramRunDiedError, match="gave its call up"),
    ):
        environment.step(begun(environment), "solver", "42")


def test_run_when_its_state_is_too_big_then_it_ends_and_its_place_is_free() -> None:
    more: dict[str, Any] = {"max_answer_chars": 600_000, "max_prompt_bytes": 2**21, "start_s": 2.0}
    with program("echoes", replay="never", max_live=1, **more) as environment:
        for _ in range(2):
            end = environment.step(begun(environment), "solver", "x" * 600_000)
            assert (end.done, end.info["failure"]) == (True, "state_too_big")
            assert lives(environment) == []


def test_run_when_a_process_is_left_busy_then_it_waits_all_the_same() -> None:
    with program("leaves_a_busy_one", replay="never", idle_s=15.0) as environment:
        step = environment.step(begun(environment), "solver", "7")
        assert environment.observe(step.state, "verifier")
        assert environment.step(step.state, "verifier", "fine").info["answer"] == "fine"


def test_run_when_nobody_answers_it_then_it_ends_and_its_place_is_free() -> None:
    with program("pair", replay="never", max_live=1, answer_s=0.5) as environment:
        state = begun(environment)
        process = process_of(environment)
        waited = threading.Event()
        for _ in range(200):
            if not process.is_alive:
                break
            waited.wait(0.05)
        assert not process.is_alive
        # Nothing had been answered yet, so the run that begins in its place is no repetition.
        assert not environment.step(state, "solver", "7").done


def test_harness_when_it_is_elsewhere_then_it_is_given_the_address_that_it_can_reach(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TROUPE_PROGRAM_LISTEN", "127.0.0.2")
    seats = {"solver": {"key": True}, "verifier": {"rest": True}}
    with program("where", seats=seats, replay="never") as environment:
        state = begun(environment)
        address = environment.observe(state, "verifier")[1].text
        assert address.startswith("http://127.0.0.2:")
        assert address.endswith("/v1")
        assert environment.step(state, "verifier", "fine").info["answer"] == "fine"
    monkeypatch.setenv("TROUPE_PROGRAM_LISTEN", "0.0.0.0")
    with (
        program("where", seats=seats, replay="never") as environment,
        pytest.raises(InvalidArgumentError, match="TROUPE_PROGRAM_ADDRESS"),
    ):
        begun(environment)


@pytest.mark.parametrize("kind", ["at_grpo", "follow", "tree_grpo"])
def test_job_when_its_runs_are_never_repeated_then_an_algorithm_that_forks_is_refused(
    kind: str,
) -> None:
    seats = {"solver": {"key": True}}
    document: dict[str, Any] = {
        "name": "once",
        "steps": 1,
        "tasks_per_step": 1,
        "task": {"name": "program", "params": params_of("pair", replay="never", seats=seats)},
        "workflow": {"kind": "self_play", "order": ["solver"], "max_turns": 4},
        "agents": {"solver": {"policy": "one"}},
        "policies": {"one": {"model": "models/any"}},
        "algorithm": {"kind": kind, "group_size": 4},
        "eval": {"num_tasks": 0},
    }
    with pytest.raises(SpecInvalidError, match="never repeated"):
        load_parts(JobSpec.model_validate(document))
    document["algorithm"]["kind"] = "grpo"
    assert load_parts(JobSpec.model_validate(document))
