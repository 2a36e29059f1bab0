"""The env service with its sandbox: required at start, opened on demand, never a weaker one."""

import asyncio
import os
import subprocess
import sys
import threading
from random import Random
from typing import Any, ClassVar

import pytest
from pydantic import BaseModel
from sandbox_here import skip_or_fail

from troupe.clients import EnvClient
from troupe.errors import DeadlineError, InvalidArgumentError, UnavailableError
from troupe.sandbox.sandbox import Limits, Program, Sandbox
from troupe.tasks.family import Message, Task, Transition
from troupe_env.app import EnvApp
from troupe_env.judging_pool import JudgingPool
from troupe_env.sandbox.settings import SandboxSettings
from troupe_env.sandbox.source import SandboxSource
from troupe_env.settings import EnvSettings


class NoParams(BaseModel):
    pass


RUN_S, CALL_S = 0.5, 1.5
"""Wall time of a program of `Hurries`, and what a job gives an action: eight in a row take 4 s."""


class Runs:
    """A family whose action is a program; its reward is 1 for printing the state."""

    limits: ClassVar[Limits] = Limits()

    name: ClassVar[str] = "runs"
    agents: ClassVar[tuple[str, ...]] = ("coder",)
    Params: ClassVar[type[BaseModel]] = NoParams
    local_terms: ClassVar[dict[str, dict[str, float]]] = {"coder": {}}
    return_bound: ClassVar[float] = 1.0

    def __init__(self, params: BaseModel) -> None:
        self.sandbox: Sandbox | None = None

    def taskset(self) -> Any:
        return self

    def environment(self) -> Any:
        raise InvalidArgumentError("needs a sandbox")

    def environment_in(self, sandbox: Sandbox) -> Any:
        self.sandbox = sandbox
        return self

    def size(self, split: str) -> int:
        return 1

    def task(self, split: Any, index: int) -> Task:
        return Task(f"runs/{split}/{index}", split, index, b"")

    def reset(self, task: Task) -> bytes:
        return b"7"

    def observe(self, state: bytes, agent: str) -> tuple[Message, ...]:
        return (Message("user", f"print {state.decode()}"),)

    def step(self, state: bytes, agent: str, action: str) -> Transition:
        assert self.sandbox is not None
        done = self.sandbox.run(Program(action), self.limits)
        is_right = done.stdout.strip().encode() == state
        return Transition(state, float(is_right), {}, True, is_right, {"limit": done.limit})

    def demonstrate(self, state: bytes, agent: str, rng: Random) -> str:
        return f"print({state.decode()})"

    def random_action(self, state: bytes, agent: str, rng: Random) -> str:
        return "print(0)"

    def vocabulary(self) -> list[str]:
        return []


class Hurries(Runs):
    """Its programs have little time."""

    name: ClassVar[str] = "hurries"
    limits: ClassVar[Limits] = Limits(wall_time_s=RUN_S)


async def serve(
    grpc_servers, sandbox: SandboxSettings, family: type[Runs] = Runs, **settings: Any
) -> tuple[EnvApp, EnvClient]:
    app = EnvApp(EnvSettings(**settings), sandbox)
    address = await grpc_servers(app.register)
    return app, EnvClient(address, f"{__name__}:{family.__name__}", {}, retry_for_s=0)


def skip_without_namespaces() -> None:
    try:
        SandboxSource(SandboxSettings(workers=1)).get().close()
    except InvalidArgumentError as error:
        skip_or_fail(error)


async def test_step_when_the_task_runs_programs_then_judged_in_the_sandbox(grpc_servers):
    skip_without_namespaces()
    app, client = await serve(grpc_servers, SandboxSettings(workers=2))
    async with client:
        start = await client.reset(split="train", index=0, observe=["coder"], timeout_s=30)
        outcomes = await client.step(
            state=start.state,
            agent="coder",
            actions=["print(7)", "print(8)", "print(int('7'))", "import os; os.kill(-1, 9)"],
            observe=[],
            timeout_s=30,
        )
    assert [o.team_reward for o in outcomes] == [1.0, 0.0, 1.0, 0.0]
    await app.close()


async def test_step_when_programs_sleep_longer_than_one_call_together_then_each_is_judged_0(
    grpc_servers,
):
    skip_without_namespaces()
    sandbox = SandboxSettings(level="namespaces", workers=2)
    app, client = await serve(grpc_servers, sandbox, Hurries)
    await app.connect()
    async with client:
        start = await client.reset(split="train", index=0, observe=[], timeout_s=30)
        outcomes = await client.step(
            state=start.state,
            agent="coder",
            actions=[f"import time; time.sleep(100) # {number}" for number in range(8)],
            observe=[],
            timeout_s=8 * CALL_S,
        )
    assert [outcome.team_reward for outcome in outcomes] == [0.0] * 8
    assert {outcome.info_json for outcome in outcomes} == {'{"limit":"wall_time"}'}
    await app.close()


@pytest.mark.parametrize(("threads", "workers", "expected"), [(0, 9, 9), (0, 2, 4), (3, 9, 3)])
def test_threads_when_not_set_then_follow_the_programs_that_run_at_once(
    threads: int, workers: int, expected: int
):
    sandbox = SandboxSettings(workers=workers)
    settings = EnvSettings(threads=threads).with_threads_for(sandbox.num_workers)
    assert settings.threads == expected


async def test_step_when_the_level_is_not_possible_then_an_error_and_games_are_served(grpc_servers):
    app, client = await serve(grpc_servers, SandboxSettings(shown_paths=["/no/such/folder"]))
    async with client:
        with pytest.raises(InvalidArgumentError, match="SHOWN_PATHS"):
            await client.reset(split="train", index=0, observe=[], timeout_s=30)
        game = EnvClient(client.address, "plan_path", {"size": 6}, retry_for_s=0)
        async with game:
            assert (await game.reset(split="train", index=0, observe=[], timeout_s=30)).state
    await app.close()


def test_process_when_the_level_asked_for_is_missing_then_status_3_and_what_to_do():
    """gVisor is not here, so a service that must have it does not serve."""
    process = subprocess.run(
        [sys.executable, "-m", "troupe_env"],
        env={**os.environ, "TROUPE_ENV_SANDBOX": "gvisor-pod"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert process.returncode == 3
    assert "gVisor" in process.stderr
    assert "runtimeClassName" in process.stderr
    assert "Nothing weaker" in process.stderr
    assert "Traceback" not in process.stderr


def test_source_when_a_level_was_refused_then_refused_again_without_a_probe():
    source = SandboxSource(SandboxSettings(level="gvisor-pod"))
    assert source.is_required
    for _ in range(2):
        with pytest.raises(InvalidArgumentError, match="gvisor-pod"):
            source.get()
    source.close()
    with pytest.raises(UnavailableError, match="closed"):
        source.get()


async def test_watch_when_every_thread_hangs_then_raises_and_one_free_thread_is_enough():
    gate = threading.Event()
    settings = EnvSettings(threads=2, hung_threads_s=0.1)
    pool = JudgingPool(settings)
    with pytest.raises(TimeoutError):
        await _within(pool.run("Step", lambda: gate.wait(30), 0.05), 5)
    try:
        with pytest.raises(TimeoutError):
            await _within(pool.watch(), 0.5)
        with pytest.raises(TimeoutError):
            await _within(pool.run("Step", lambda: gate.wait(30), 0.05), 5)
        with pytest.raises(UnavailableError, match="All 2 threads"):
            await _within(pool.watch(), 10)
    finally:
        gate.set()
        pool.close()


async def _within(work: Any, timeout_s: float) -> Any:
    """``work`` within ``timeout_s``; a DeadlineError is a time-out too."""
    try:
        async with asyncio.timeout(timeout_s):
            return await work
    except DeadlineError as error:
        raise TimeoutError from error
