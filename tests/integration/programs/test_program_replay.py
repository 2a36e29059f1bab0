"""Replay: equal answers lead to equal calls, and what differs is dropped, counted and named."""

import asyncio
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from random import Random
from typing import Any

import pytest
from program_world import SEATS, asked, begun, forget, gave_up, played, program

from troupe.errors import InvalidArgumentError, UnavailableError
from troupe.runtime.telemetry import metrics


@pytest.fixture
def busy_cores() -> Iterator[None]:
    """Other processes that keep every core busy."""
    burn = "import os\nwhile os.getppid() != 1: sum(range(10000))"
    burning = [subprocess.Popen([sys.executable, "-c", burn]) for _ in range(3)]
    yield
    for process in burning:
        process.kill()
        process.wait()


def _diverged() -> float:
    return metrics.ENV_PROGRAM_DIVERGED._value.get()


@pytest.mark.timeout(1800)
@pytest.mark.usefixtures("busy_cores")
@pytest.mark.parametrize("num_episodes", [5, pytest.param(200, marks=pytest.mark.slow)])
def test_program_when_fan_out_then_replays_alike(num_episodes: int) -> None:
    with program("fan_out", warm=True, max_live=32) as environment:

        def both(index: int) -> None:
            steps = played(environment, index, Random(index))
            assert len(steps) == 5
            forget(environment)
            assert played(environment, index, Random(index)) == steps
            # A leaf: every answer but the last is replayed into a new process.
            forget(environment)
            again = environment.step(steps[-2].state, "verifier", "0")
            assert again.done

        with ThreadPoolExecutor(3) as pool:
            list(pool.map(both, range(num_episodes)))
        assert environment.worlds.num_replayed > 3 * num_episodes


def test_calls_when_they_ask_the_same_at_once_then_each_is_a_call() -> None:
    with program("same_thrice") as environment:
        assert len(played(environment, 0, Random(0))) == 3


def test_program_when_clock_in_prompt_then_dropped_and_counted() -> None:
    with program("clock") as environment:
        state = environment.step(begun(environment), "solver", "7").state
        before = _diverged()
        environment.step(state, "verifier", "ok")
        with pytest.raises(InvalidArgumentError, match=r"call 2, of agent verifier: .*At 20"):
            environment.step(state, "verifier", "no")
        assert _diverged() == before + 1


def test_clock_when_the_seat_ignores_it_then_the_program_repeats() -> None:
    seats = {**SEATS, "verifier": {"system": "You are the verifier", "ignore": r"At \S+:"}}
    with program("clock", seats=seats) as environment:
        state = environment.step(begun(environment), "solver", "7").state
        assert environment.observe(state, "verifier")[1].content == "* 7"
        ends = [environment.step(state, "verifier", text).done for text in ("ok", "no", "ok")]
        assert ends == [True] * 3


def test_run_when_it_may_not_be_repeated_then_a_lost_one_is_retryable() -> None:
    with program("pair", replay="never") as environment:
        state = environment.step(begun(environment), "solver", "7").state
        kept = environment.step(state, "verifier", "ok")
        assert kept.done
        with pytest.raises(UnavailableError, match="replay: never"):
            environment.step(state, "verifier", "no")


def test_pod_when_it_has_never_seen_the_episode_then_it_goes_on_with_it() -> None:
    with program("pair") as first, program("pair") as second:
        state = first.step(begun(first, 5), "solver", "7").state
        assert second.step(state, "verifier", "ok") == first.step(state, "verifier", "ok")


def test_door_when_sdk_retries_then_one_call() -> None:
    with program("hurried", keep_alive_s=5.0, warm=False) as environment:
        state = begun(environment)
        world = environment.worlds._idle.copy().popitem()[1]
        run: Any = world._run
        waited = threading.Event()
        for _ in range(200):
            if run.num_retries >= 5:
                break
            waited.wait(0.05)
        assert run.num_retries >= 5
        assert run.num_calls == 1
        assert environment.step(state, "solver", "9").info["answer"] == "9"


def test_door_when_the_answer_takes_longer_than_the_clients_time_out_then_it_waits() -> None:
    with program("impatient", keep_alive_s=0.2, warm=False) as environment:
        state = begun(environment)
        world = environment.worlds._idle.copy().popitem()[1]
        run: Any = world._run
        threading.Event().wait(2.5)
        assert environment.step(state, "solver", "9").info["answer"] == "9"
        assert (run.num_calls, run.num_retries) == (1, 0)


def test_call_when_its_client_gave_it_up_then_its_answer_goes_to_no_other_call() -> None:
    with program("falls_back", keep_alive_s=9.0) as environment:
        state = begun(environment)
        run = gave_up(environment)
        assert environment.step(state, "solver", "42").info["answer"] == "long 42"
        assert run.is_void
        assert {call.text for call in run.calls} == {None}


def test_call_of_one_of_two_when_its_client_gave_it_up_then_it_is_made_again() -> None:
    with program("votes", keep_alive_s=9.0) as environment:
        state = environment.step(begun(environment), "verifier", "go").state
        assert asked(environment, state) == ["solver", "verifier"]
        gave_up(environment)
        state = environment.step(state, "solver", "42").state
        assert environment.step(state, "verifier", "yes").info["answer"] == "42 yes"


async def test_runs_when_many_are_live_then_each_goes_its_own_way() -> None:
    with program("slow", max_live=12) as environment:
        ends = await asyncio.gather(
            *(asyncio.to_thread(played, environment, i, Random(i)) for i in range(6))
        )
        assert [len(steps) for steps in ends] == [2] * 6
