"""The judge of an evaluation: a task family in this process, with a sandbox when it runs programs.

Owns deadlines and threads of judging. A family that runs programs judges on threads, so that one
slow program never holds up other episodes; a family of pure arithmetic judges in place.
"""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Self, TypeVar

from troupe import plugins
from troupe.episodes.ports import EnvPort, Outcome, Start, outcome_of
from troupe.errors import DeadlineError
from troupe.sandbox.sandbox import Sandbox
from troupe.tasks.family import Observation, SandboxedTaskFamily, Split, TaskFamily
from troupe.tasks.registry import make_environment

_T = TypeVar("_T")


class JudgingEnv:
    """EnvPort on ``family``; close it after use. ``num_threads`` bounds programs at once.

    ``open_sandbox`` opens the sandbox of a family that needs one.
    """

    def __init__(
        self,
        family: TaskFamily,
        *,
        num_threads: int = 4,
        open_sandbox: Callable[[], Sandbox] | None = None,
    ) -> None:
        self._sandbox: Sandbox | None = None
        self._threads: ThreadPoolExecutor | None = None
        if isinstance(family, SandboxedTaskFamily):
            self._sandbox = (open_sandbox or plugins.load(plugins.SANDBOXES, "local"))()
            self._threads = ThreadPoolExecutor(num_threads, "eval-judge")
        self._free = asyncio.Semaphore(num_threads)
        try:
            self._environment = make_environment(family, self._sandbox)
            self._tasks = family.taskset()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End running programs and free the threads."""
        if self._sandbox is not None:
            self._sandbox.close()
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)

    @property
    def is_threaded(self) -> bool:
        """Whether judging waits for programs, so that other episodes can go on meanwhile."""
        return self._threads is not None

    def size(self, split: Split) -> int | None:
        """Number of tasks in the split; None when it does not end."""
        return self._tasks.size(split)

    async def reset(
        self, *, split: Split, index: int, observe: Sequence[str], timeout_s: float
    ) -> Start:
        """The first state of a task."""

        def begin() -> Start:
            task = self._tasks.task(split, index)
            state = self._environment.reset(task)
            return Start(task.id, state, self._observe(state, observe))

        return await self._within(timeout_s, f"reset of {split}/{index}", begin)

    async def step(
        self,
        *,
        state: bytes,
        agent: str,
        actions: Sequence[str],
        observe: Sequence[str],
        timeout_s: float,
    ) -> list[Outcome]:
        """Judge each action on its own copy of ``state``."""

        def judge() -> list[Outcome]:
            return [self._outcome(state, agent, action, observe) for action in actions]

        return await self._within(timeout_s, f"judging of {agent}'s action", judge)

    def _outcome(self, state: bytes, agent: str, action: str, observe: Sequence[str]) -> Outcome:
        done = self._environment.step(state, agent, action)
        return outcome_of(done, self._observe(done.state, observe))

    def _observe(self, state: bytes, agents: Sequence[str]) -> dict[str, Observation]:
        return {agent: self._environment.observe(state, agent) for agent in agents}

    async def _within(self, timeout_s: float, what: str, work: Callable[[], _T]) -> _T:
        if self._threads is None:
            return work()
        loop = asyncio.get_running_loop()
        try:
            # The deadline is the program's: waiting for a thread counts to the episode alone.
            async with self._free, asyncio.timeout(timeout_s):
                return await loop.run_in_executor(self._threads, work)
        except TimeoutError as error:
            raise DeadlineError(
                f"{what} took longer than limits.env_timeout_s = {timeout_s:g}"
            ) from error


class WatchedEnv:
    """EnvPort of one episode that knows the present state, for players that may see it.

    One candidate is drawn at each action, so the state of the last outcome is the episode's.
    """

    def __init__(self, env: EnvPort) -> None:
        self._env = env
        self.state = b""

    async def reset(
        self, *, split: Split, index: int, observe: Sequence[str], timeout_s: float
    ) -> Start:
        """The first state of a task."""
        start = await self._env.reset(
            split=split, index=index, observe=observe, timeout_s=timeout_s
        )
        self.state = start.state
        return start

    async def step(
        self,
        *,
        state: bytes,
        agent: str,
        actions: Sequence[str],
        observe: Sequence[str],
        timeout_s: float,
    ) -> list[Outcome]:
        """Judge each action on its own copy of ``state``."""
        outcomes = await self._env.step(
            state=state, agent=agent, actions=actions, observe=observe, timeout_s=timeout_s
        )
        self.state = outcomes[-1].state
        return outcomes
