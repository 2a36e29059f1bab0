"""Runs `troupe.episodes.judge` on a bounded pool of threads, with a queue and a deadline.

Owns concurrency. Never interprets a state and never scores: the task's environment does.
"""

import asyncio
import threading
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import copy_context
from typing import TypeVar

from troupe.episodes.judge import first_state, observations_of, outcomes, without_exit
from troupe.episodes.ports import Outcome, Start
from troupe.errors import (
    DeadlineError,
    InvalidArgumentError,
    OverloadedError,
    TroupeError,
    UnavailableError,
)
from troupe.runtime.faults import reached
from troupe.runtime.telemetry import metrics
from troupe.runtime.telemetry.logging import get_logger
from troupe.runtime.transient import is_transient
from troupe.tasks.family import Observation, Task, runs_programs
from troupe_env.families import Loaded
from troupe_env.in_flight import InFlight
from troupe_env.settings import MIN_THREADS, EnvSettings

_log = get_logger(__name__)
_T = TypeVar("_T")
_WATCH_S = 1.0


class JudgingPool:
    """Threads that run the pure functions of task families, with a bounded queue and deadlines."""

    def __init__(self, settings: EnvSettings) -> None:
        self._settings = settings
        self._num_threads = settings.threads or MIN_THREADS
        self._pool = ThreadPoolExecutor(self._num_threads, thread_name_prefix="env")
        self.in_flight = InFlight()
        self._deadlines: dict[int, float] = {}

    async def run(self, what: str, work: Callable[[], _T], timeout_s: float) -> _T:
        """``work()`` on a thread.

        Raises:
            OverloadedError: too many requests wait already.
            DeadlineError: it was not finished in time.
        """
        return (await self._run_all(what, [work], timeout_s))[0]

    async def step(
        self,
        loaded: Loaded,
        *,
        state: bytes,
        seal: bytes,
        agent: str,
        actions: Sequence[str],
        observe: Sequence[str],
        timeout_s: float,
    ) -> list[Outcome]:
        """Each action's outcome on its own copy of ``state``, in order.

        Raises:
            StateChangedError: ``seal`` is not that of ``state``; nothing was judged.
            InvalidArgumentError: the task fails on ``state``, and no seal vouches for it.
            TroupeError: the task fails on a state that an env produced: a bug of the task.
        """
        # One action may run programs for seconds, and waits for those of others.
        size = 1 if runs_programs(loaded.family) else self._settings.actions_per_thread
        parts = [actions[i : i + size] for i in range(0, len(actions), size)]
        works = [
            lambda part=part: judged(loaded, state, seal, agent, part, observe) for part in parts
        ]
        with metrics.ENV_STEP_SECONDS.time():
            parts_judged = await self._run_all("Step", works, timeout_s)
        all_judged = [outcome for part in parts_judged for outcome in part]
        for outcome in all_judged:
            metrics.ENV_ACTIONS.labels(str(outcome.is_success).lower()).inc()
        return all_judged

    async def watch(self) -> None:
        """Report threads that hang in a task's code; raises when no other is free for long.

        Python can't end a thread, so a process without a free one is useless: when it ends, the
        launcher starts a fresh one, and callers retry.
        """
        while True:
            hung = self._overdue(0.0)
            metrics.ENV_HUNG_THREADS.set(hung)
            limit_s = self._settings.hung_threads_s
            if self._overdue(limit_s) >= self._num_threads:
                raise UnavailableError(
                    f"All {hung} threads judge for more than {limit_s:g} s past their deadline: a "
                    "task's code hangs. The process ends and is started again; correct the task."
                )
            await asyncio.sleep(_WATCH_S)

    def close(self) -> None:
        """Accept no more work; hanging threads are abandoned, and the process ends over them."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    async def _run_all(
        self, what: str, works: Sequence[Callable[[], _T]], timeout_s: float
    ) -> list[_T]:
        limit = self._settings.max_requests
        if self.in_flight.num >= limit:
            raise OverloadedError(
                f"The env service judges or queues {limit} requests already; try again, add "
                "replicas, or raise TROUPE_ENV_MAX_REQUESTS."
            )
        loop = asyncio.get_running_loop()
        deadline = time.monotonic() + timeout_s
        calls = [self._bound(work, deadline) for work in works]
        futures = [loop.run_in_executor(self._pool, call) for call in calls]
        try:
            with self.in_flight.one():
                async with asyncio.timeout(timeout_s):
                    return list(await asyncio.gather(*futures))
        except TimeoutError as error:
            raise DeadlineError(
                f"{what} did not finish in {timeout_s:.1f} s: the task's code hangs or needs more "
                "time (limits.env_timeout_s of the job; TROUPE_ENV_CALL_TIMEOUT_S where the caller "
                "sets no deadline), or the env service has too few threads (TROUPE_ENV_THREADS)."
            ) from error
        finally:
            for future in futures:
                future.cancel()

    def _bound(self, work: Callable[[], _T], deadline: float) -> Callable[[], _T]:
        """``work`` for a thread, which goes on in the caller's trace."""
        context = copy_context()
        return lambda: context.run(self._timed, work, deadline)

    def _timed(self, work: Callable[[], _T], deadline: float) -> _T:
        thread = threading.get_ident()
        self._deadlines[thread] = deadline
        try:
            return without_exit(work)
        finally:
            del self._deadlines[thread]

    def _overdue(self, by_s: float) -> int:
        now = time.monotonic()
        return sum(now > deadline + by_s for deadline in list(self._deadlines.values()))


def begun(loaded: Loaded, task: Task, agents: Sequence[str]) -> Start:
    """The first state of ``task``, sealed, and what each of ``agents`` sees in it."""
    with _blamed(loaded, b"", is_ours=True):
        return first_state(loaded.environment, task, agents, seal=loaded.seals.sealed)


def judged(
    loaded: Loaded,
    state: bytes,
    seal: bytes,
    agent: str,
    actions: Sequence[str],
    observe: Sequence[str],
) -> list[Outcome]:
    """Each action's outcome on its own copy of ``state``, in this thread."""
    reached("env.stepping", agent)
    with _blamed(loaded, state, is_ours=loaded.seals.vouches(state, seal)):
        return outcomes(
            loaded.environment, state, agent, actions, observe, seal=loaded.seals.sealed
        )


def observed(
    loaded: Loaded, state: bytes, seal: bytes, agents: Sequence[str]
) -> Mapping[str, Observation]:
    """What each of ``agents`` sees in ``state``, in this thread."""
    with _blamed(loaded, state, is_ours=loaded.seals.vouches(state, seal)):
        return observations_of(loaded.environment, state, agents)


@contextmanager
def _blamed(loaded: Loaded, state: bytes, *, is_ours: bool) -> Generator[None]:
    """Attribute an exception of the task's code: to the task if the state ``is_ours``.

    Otherwise to the caller: nothing shows that those bytes ever were a state. The environment stays
    open meanwhile, evicted or not.
    """
    try:
        with loaded.uses.one():
            yield
    except (TroupeError, TimeoutError):
        raise
    except (Exception, SystemExit) as error:  # the latter would end the process
        if is_transient(error):
            raise
        name, what = loaded.family.name, f"{type(error).__name__}: {error}"
        if is_ours:
            _log.error("env.task_failed", task=name, exc_info=error)
            raise TroupeError(
                f"Task {name!r} failed on a state it made ({what}). This is a bug of the task; "
                "the env service's log has the traceback. Correct the task."
            ) from error
        metrics.ENV_REFUSED_STATES.labels("unreadable").inc()
        raise InvalidArgumentError(
            f"The {len(state)} state bytes are not a state of task {name!r} with these parameters, "
            f"or the task has a bug ({what}); no seal came with them, so the env service can't "
            "tell. Send the state and the seal that Reset or Step returned.",
            pointer="/state",
        ) from error
