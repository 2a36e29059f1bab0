"""A program's life: what it asks, how it ends, whose failure an end is, and what it leaves."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from random import Random
from typing import Any

import pytest
from program_world import asked, begun, forget, params_of, played, program
from structlog.testing import capture_logs

from troupe.conformance import CheckLimits, check_family
from troupe.errors import InvalidArgumentError, ProgramBadCallError, UnavailableError
from troupe.tasks.registry import load_family
from troupe_env.families import Families
from troupe_tasks.programs import launcher
from troupe_tasks.programs.activity import start_time


def are_soon_gone(pids: list[int]) -> bool:
    """Whether all end within 5 s: they are told to at once, and the kernel takes its time."""
    waited = threading.Event()
    for _ in range(100):
        if not any(start_time(pid) for pid in pids):
            return True
        waited.wait(0.05)
    return False


def test_program_when_it_asks_then_the_calls_are_turns_and_its_answer_is_judged() -> None:
    with program("pair") as environment:
        state = begun(environment, 3)
        assert asked(environment, state) == ["solver"]
        system, user = environment.observe(state, "solver")
        assert (system.role, system.content) == ("system", "You are the solver.")
        a, b = (int(word.strip("?")) for word in user.content.split() if word.strip("?").isdigit())
        right = environment.step(state, "solver", str(a + b))
        assert dict(right.local_rewards) == {"judged": 1.0}
        assert environment.observe(right.state, "verifier")[1].content == str(a + b)
        end = environment.step(right.state, "verifier", "fine")
        assert (end.team_reward, end.done, end.success) == (1.0, True, True)
        assert environment.step(state, "solver", "no").local_rewards == {"judged": 0.0}


def test_program_when_it_raises_after_an_answer_then_it_is_the_teams_failure() -> None:
    with program("raises") as environment:
        end = environment.step(begun(environment), "solver", "one")
        assert (end.team_reward, end.done, end.success) == (0.0, True, False)
        assert end.info["failure"] == "program_error"
        assert "cannot parse 'one'" in end.info["message"]
        assert "shapes.py" in end.info["traceback"]


def test_program_when_it_returns_none_then_it_failed_and_is_told_what_to_return() -> None:
    with program("forgets_to_return") as environment:
        end = environment.step(begun(environment), "solver", "one")
        assert (end.done, end.info.get("failure")) == (True, "program_error")
        assert "returned None; return the answer's text, '' for none" in end.info["message"]


def test_program_when_it_coped_with_a_refusal_then_a_later_failure_is_the_teams() -> None:
    with program("counts_first") as environment:
        end = environment.step(begun(environment), "solver", "APPROVE")
        assert (end.team_reward, end.done, end.info["failure"]) == (0.0, True, "program_error")


@pytest.mark.parametrize(
    ("shape", "why"),
    [
        ("raises_at_once", "failed before it asked any model: KeyError: 'no such setting'"),
        ("forgets_to_await", "failed before it asked any model: .* a coroutine unawaited; await"),
        ("yields", "failed before it asked any model: .* a generator; return the answer's text"),
        ("silent", "before it asked"),
    ],
)
def test_program_when_it_ends_before_it_asks_then_that_is_a_bug_and_says_so(
    shape: str, why: str
) -> None:
    with program(shape) as environment, pytest.raises(InvalidArgumentError, match=why):
        begun(environment)


@pytest.mark.parametrize(
    ("shape", "why"),
    [
        ("hangs", "neither asked a model nor ended"),
        ("dies", "process died without an answer: signal 9, killed"),
        ("exits", "process died without an answer: it exited with status 3"),
    ],
)
def test_program_when_it_hangs_or_dies_then_it_is_retryable(shape: str, why: str) -> None:
    with program(shape, idle_s=1.5, warm=False) as environment:
        state = begun(environment)
        with pytest.raises(UnavailableError, match=why):
            environment.step(state, "solver", "one")


def test_program_when_its_warm_run_hangs_then_goes_on_without_one_and_says_so() -> None:
    began = time.monotonic()
    with capture_logs() as logs, program("hangs", idle_s=1.5) as environment:
        begun(environment)
        assert time.monotonic() - began < 60.0  # start_s is 120 s
    [told] = [log for log in logs if log["event"] == "program.not_warmed"]
    assert "neither asked nor ended for 1.5 s (idle_s)" in told["reason"]
    assert told["then"] == "going on without a warm run"


def test_program_when_its_warm_run_ends_the_process_then_says_that_it_ended() -> None:
    with capture_logs() as logs, program("exits") as environment:
        begun(environment)
    [told] = [log for log in logs if log["event"] == "program.not_warmed"]
    assert told["reason"] == "the process that forks programs has ended"


def test_program_when_its_loop_has_no_end_then_the_episode_ends_unpaid() -> None:
    with program("loops", max_calls=3) as environment:
        steps = played(environment, 0, Random(0))
        assert len(steps) == 3
        assert steps[-1].info["failure"] == "too_many_calls"
        assert steps[-1].done


def test_program_when_its_prompts_grow_then_the_episode_ends_unpaid() -> None:
    with program("grows", max_prompt_bytes=2048, max_calls=30) as environment:
        assert played(environment, 0, Random(0))[-1].info["failure"] == "prompt_too_long"


def test_program_when_it_floods_the_endpoint_then_it_is_refused() -> None:
    with (
        program("floods", max_waiting=4, warm=False) as environment,
        pytest.raises(InvalidArgumentError, match="more than 4 model calls at once"),
    ):
        begun(environment)


def test_program_when_an_agent_makes_it_flood_the_endpoint_then_it_is_the_teams_failure() -> None:
    with program("floods_after_an_answer", max_waiting=4, warm=False) as environment:
        end = environment.step(begun(environment), "solver", "12")
        assert (end.team_reward, end.done, end.success) == (0.0, True, False)
        assert end.info["failure"] == "too_many_calls_at_once"
        assert "more than 4 model calls at once" in end.info["message"]


def test_call_when_no_seat_claims_it_then_the_error_shows_it() -> None:
    with (
        program("strange") as environment,
        pytest.raises(InvalidArgumentError, match=r"You are a stranger.*solver: system"),
    ):
        begun(environment)


@pytest.mark.parametrize("shape", ["several", "swallows"])
def test_request_when_it_is_refused_then_the_refusal_is_told(shape: str) -> None:
    with program(shape) as environment, pytest.raises(ProgramBadCallError, match="n must be 1"):
        begun(environment)


def test_request_when_it_holds_an_image_then_the_refusal_is_told() -> None:
    with program("pictures") as environment:
        state = begun(environment)
        with pytest.raises(InvalidArgumentError, match="an image must be a data URL"):
            environment.step(state, "solver", "one")


def test_program_when_it_runs_then_it_sees_an_empty_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TROUPE_SECRET_TEST", "secret")
    with program("shows_environment") as environment:
        names = environment.step(begun(environment), "solver", "x").info["answer"]
        assert "OPENAI_BASE_URL" in names
        assert "LANGCHAIN_OPENAI_STREAM_CHUNK_TIMEOUT_S" in names  # comments don't reset it
        assert "SECRET" not in names


def test_run_when_it_is_closed_then_all_that_it_began_is_ended() -> None:
    with program("leaves_children", warm=False) as environment:
        text = environment.observe(begun(environment), "solver")[1].content.split()
        pids = [int(text[-3]), int(text[-1])]
        assert all(start_time(pid) for pid in pids)
        forget(environment)
        assert are_soon_gone(pids)


@pytest.mark.parametrize("start", ["fork", "fresh"])
def test_run_when_its_process_has_died_then_all_that_it_began_is_ended(start: str) -> None:
    with program("dies_and_leaves_a_child", warm=False, start=start) as environment:
        state = begun(environment)
        child = int(environment.observe(state, "solver")[1].content.split()[-1])
        assert start_time(child)
        with pytest.raises(UnavailableError, match="died without an answer"):
            environment.step(state, "solver", "7")
        assert are_soon_gone([child])


def test_sampling_when_the_program_sets_it_then_the_spec_decides_and_stop_is_kept() -> None:
    with program("stopped") as environment:
        end = environment.step(begun(environment), "solver", "one END two")
        assert end.info["answer"] == "one "
        assert environment.services.endpoint().num_overridden["temperature"] >= 1


def test_answer_when_a_stop_ends_it_then_it_is_judged_as_the_program_got_it() -> None:
    with program("stopped") as environment:
        state = begun(environment)
        question = environment.observe(state, "solver")[1].text
        right = str(sum(int(word) for word in question.rstrip("?").split() if word.isdigit()))
        ends = [
            environment.step(state, "solver", text)
            for text in (f"{right} END\nObservation: 7", f"0 END {right}")
        ]
        assert [(dict(e.local_rewards), e.team_reward) for e in ends] == [
            ({"judged": 1.0}, 1.0),
            ({"judged": 0.0}, 0.0),
        ]


def test_answer_when_a_stop_sequence_ends_it_then_the_program_is_told_which() -> None:
    with program("sequenced") as environment:
        state = begun(environment)
        ends = [environment.step(state, "solver", text) for text in ("so END Observation", "so")]
        assert [end.info["answer"] for end in ends] == ["stop_sequence END", "end_turn None"]


def test_randomness_when_the_task_is_the_same_then_it_repeats() -> None:
    with program("chance") as environment:
        first = [environment.observe(begun(environment, i), "solver")[1].content for i in (1, 2, 1)]
        assert first[0] == first[2]
        assert first[0] != first[1]


def test_family_when_the_env_service_evicts_it_then_its_processes_end() -> None:
    families = Families(1)
    loaded = families.get("program", json.dumps(params_of("leaves_children", warm=False)))
    environment: Any = loaded.environment
    state = environment.reset(loaded.taskset.task("train", 0))
    pid = int(environment.observe(state, "solver")[1].content.split()[-1])
    assert start_time(pid)
    families.get("plan_path", "{}")
    assert are_soon_gone([pid])
    families.close()


def test_process_when_it_is_killed_then_no_program_outlives_it() -> None:
    code = (
        "import time\n"
        "from program_world import begun, program\n"
        "with program('leaves_children', warm=False) as environment:\n"
        "    text = environment.observe(begun(environment), 'solver')[1].content\n"
        "    print(text.split()[-1], flush=True)\n"
        "    time.sleep(600)\n"
    )
    folder = str(Path(__file__).parent)
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        pid = int(process.stdout.readline())
        assert start_time(pid)
        process.kill()
    waited = threading.Event()
    for _ in range(100):
        if not start_time(pid):
            return
        waited.wait(0.05)
    raise AssertionError("the program outlives the process that started it")


def test_fork_server_when_it_does_not_answer_then_the_next_run_starts_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with program("pair", warm=False) as environment:
        begun(environment)
        server: Any = environment.services.launcher._server
        os.kill(server.pid, signal.SIGSTOP)
        with monkeypatch.context() as patch:
            patch.setattr(launcher, "REPLY_S", 0.2)
            with pytest.raises(UnavailableError, match="did not answer"):
                begun(environment, 1)
        with contextlib.suppress(ProcessLookupError):
            os.kill(server.pid, signal.SIGCONT)
        assert asked(environment, begun(environment, 2)) == ["solver"]


@pytest.mark.timeout(300)
def test_kit_when_it_tries_to_break_a_program_then_it_holds() -> None:
    family = load_family("program", params_of("pair", max_calls=4))
    limits = CheckLimits(
        num_tasks=1,
        max_steps=3,
        seconds=0.3,
        check_seconds=1.0,
        huge_chars=50_000,
        split_sample=20,
        num_draws=6,
        num_processes=0,
    )
    try:
        report = check_family(family, limits=limits)
    finally:
        family.close()  # type: ignore[attr-defined]
    assert report.is_ok, report.text()


def test_program_when_it_is_started_afresh_each_time_then_it_plays_the_same() -> None:
    with program("pair", start="fresh") as environment, program("pair") as forked:
        assert played(environment, 4, Random(1))[-1] == played(forked, 4, Random(1))[-1]
