"""Programs in the env service's sandbox: what a model's commands reach, and how a run ends."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from program_world import begun, params_of, program
from sandbox_here import skip_or_fail
from test_program_once import process_of

from troupe.errors import InvalidArgumentError, ProgramRunDiedError
from troupe.sandbox.sandbox import Sandbox
from troupe.spec.issues import SpecInvalidError
from troupe.tasks.registry import load_family
from troupe_env.sandbox import local_sandbox
from troupe_tasks.programs.activity import descendants, start_time
from troupe_tasks.programs.environment import ProgramEnvironment

INSIDE: dict[str, Any] = {
    "python": sys.executable,
    "sandbox": {"memory_mib": 256, "disk_mib": 8},
    "replay": "never",
}
SOLVER = {"seats": {"solver": {"key": True}}}


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    if Path(sys.executable).is_relative_to("/tmp"):
        pytest.skip("this environment lies below /tmp, which is a command's own in the sandbox")
    try:
        opened = local_sandbox()
    except InvalidArgumentError as error:
        skip_or_fail(error)
    yield opened
    opened.close()


def told(environment: ProgramEnvironment, command: str) -> dict[str, Any]:
    """What a shell command of the agent reached."""
    end = environment.step(begun(environment), "solver", command)
    return json.loads(end.info["answer"])


def test_command_of_an_agent_when_in_the_sandbox_then_it_reaches_the_endpoint_alone(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TROUPE_SECRET_TEST", "secret")
    reach = (
        "python -c \"import os, socket; print(os.getuid(), os.path.exists('/proc/1'), "
        "socket.socket().connect_ex(('127.0.0.1', 8000)), "
        "socket.socket().connect_ex(('10.1.2.3', 80)))\"; touch /usr/mine 2>/dev/null || echo no"
    )
    with program("looks_around", in_sandbox=sandbox, **INSIDE, **SOLVER) as environment:
        first, second = told(environment, reach), told(environment, "cat notes.txt; ls ..")
    assert first["output"] == "1000 False 0 101\nno\n"
    assert not [name for name in first["env"] if "SECRET" in name]
    assert second["files"] == [".stdin", ".troupe", "notes.txt"]
    assert "tests" not in second["output"].split()


def test_program_when_in_the_sandbox_then_its_calls_are_turns_as_ever(sandbox: Sandbox) -> None:
    keyed = {"seats": {"coder": {"key": True}, "tester": {"key": True}}}
    with program("keyed", in_sandbox=sandbox, **INSIDE, **keyed) as environment:
        state = begun(environment)
        for agent in ("coder", "tester", "coder"):
            assert environment.observe(state, agent)
            step = environment.step(state, agent, "7")
            state = step.state
        assert (step.done, step.info["answer"]) == (True, "7")


def test_run_in_the_sandbox_when_it_is_killed_then_it_is_retryable_and_nothing_is_left(
    sandbox: Sandbox,
) -> None:
    with program("pair", in_sandbox=sandbox, **INSIDE) as environment:
        state = environment.step(begun(environment), "solver", "7").state
        process = process_of(environment)
        begun_by_it = descendants(process.pid)
        os.kill(process.pid, signal.SIGKILL)
        # What it began ends with it, a moment later: until then an answer might still be heard.
        deadline = time.monotonic() + 30.0
        while process.is_alive or any(start_time(pid) for pid in begun_by_it):
            assert time.monotonic() < deadline
            time.sleep(0.005)
        with pytest.raises(ProgramRunDiedError):
            environment.step(state, "verifier", "fine")
        assert not process.is_alive
        state = environment.step(begun(environment), "solver", "7").state
        assert environment.step(state, "verifier", "fine").done


def test_run_in_the_sandbox_when_an_agent_kills_it_then_it_died_and_is_not_paid(
    sandbox: Sandbox,
) -> None:
    with (
        program("looks_around", in_sandbox=sandbox, **INSIDE, **SOLVER) as environment,
        pytest.raises(ProgramRunDiedError),
    ):
        environment.step(begun(environment), "solver", "kill -9 $PPID; sleep 60")


def test_sandbox_when_the_program_is_repeated_or_there_is_none_then_it_is_refused() -> None:
    with pytest.raises(SpecInvalidError, match="replay: never"):
        load_family("program", params_of("pair", sandbox={}, python=sys.executable))
    with pytest.raises(SpecInvalidError, match="python of its own"):
        load_family("program", params_of("pair", sandbox={}, replay="never"))
    with (
        pytest.raises(InvalidArgumentError, match="TROUPE_ENV_SANDBOX"),
        program("pair", **INSIDE),
    ):
        pass


def test_command_of_an_agent_when_it_takes_too_much_then_it_fails_and_its_run_goes_on(
    sandbox: Sandbox,
) -> None:
    memory = "python -c 'x = bytearray(1 << 30)' 2>/dev/null || echo none"
    disk = "head -c 20000000 /dev/zero > big 2>/dev/null || echo full"
    with program("looks_around", in_sandbox=sandbox, **INSIDE, **SOLVER) as environment:
        assert told(environment, f"{memory}; {disk}; rm big")["output"] == "none\nfull\n"


def test_service_when_it_is_killed_then_no_run_in_the_sandbox_outlives_it(sandbox: Sandbox) -> None:
    code = (
        "import sys, time\n"
        "from program_world import begun, program\n"
        "from test_program_once import process_of\n"
        "from troupe_env.sandbox import local_sandbox\n"
        "inside = dict(sandbox={}, replay='never', python=sys.executable)\n"
        "with program('pair', in_sandbox=local_sandbox(), **inside) as environment:\n"
        "    begun(environment)\n"
        "    print(process_of(environment).pid, flush=True)\n"
        "    time.sleep(600)\n"
    )
    command, folder = [sys.executable, "-c", code], str(Path(__file__).parent)
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        lines = iter(process.stdout.readline, "")
        pids = descendants(int(next(line for line in lines if line.strip().isdigit())))
        assert len(pids) == 4  # what waits, the first process of each namespace, the program
        process.kill()
    waited = threading.Event()
    for _ in range(200):
        if not any(start_time(pid) for pid in pids):
            return
        waited.wait(0.05)
    raise AssertionError("a run outlives the service that started it")
