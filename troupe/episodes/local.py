"""In-process ports: a task family's own environment, its scripted player, and an engine.

For evaluations, dry runs, notebooks and tests. An observation carries the state that it shows, for
scripted players; a model never sees that state. Never keeps score.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cached_property
from random import Random
from typing import Literal, Self, TypeVar

from troupe import plugins
from troupe.candidates import GenerateRequest, Generation, text_generation
from troupe.episodes.judge import first_state, observations_of, outcomes, without_exit
from troupe.episodes.ports import Outcome, Start
from troupe.errors import DeadlineError, InvalidArgumentError
from troupe.runtime.engines.engine import Engine
from troupe.runtime.engines.rendering import rendered
from troupe.sandbox.sandbox import Sandbox
from troupe.tasks.family import (
    BoundedObservation,
    Environment,
    Observation,
    Split,
    Task,
    TaskFamily,
    Taskset,
    bound_of,
    close_environment,
    needs_sandbox,
    observed_images,
    runs_programs,
    tools_of,
)
from troupe.tasks.optional import request_task, required_policy, scripted_policy
from troupe.tasks.registry import make_environment

_T = TypeVar("_T")


class StateObservation(BoundedObservation):
    """An observation that knows its ``state`` and ``agent``; equal to its messages."""

    state: bytes
    agent: str

    @classmethod
    def of(cls, messages: Observation, state: bytes, agent: str) -> "StateObservation":
        """What ``agent`` sees in ``state``."""
        observation = cls(messages, bound_of(messages), tools_of(messages))
        observation.state, observation.agent = state, agent
        return observation


class LocalEnv:
    """EnvPort on ``family`` in this process; close it after use.

    A family that runs programs judges on threads, at most ``num_threads`` at once, so that one slow
    program never delays other episodes; ``open_sandbox`` opens its sandbox and defaults to this
    machine's. Other families judge in the calling thread, where no deadline holds, unless
    ``threaded``.
    """

    def __init__(
        self,
        family: TaskFamily,
        *,
        num_threads: int = 4,
        open_sandbox: Callable[[], Sandbox] | None = None,
        threaded: bool = False,
    ) -> None:
        self._family = family
        self._sandbox: Sandbox | None = None
        self._threads: ThreadPoolExecutor | None = None
        if needs_sandbox(family):
            self._sandbox = (open_sandbox or plugins.load(plugins.SANDBOXES, "local"))()
        if threaded or runs_programs(family):
            self._threads = ThreadPoolExecutor(num_threads, "judge")
        self._free = asyncio.Semaphore(num_threads)
        try:
            self._environment: Environment = make_environment(family, self._sandbox)
        except BaseException:
            self._free_threads()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop running programs and free the threads."""
        close_environment(self._environment)
        self._free_threads()

    def _free_threads(self) -> None:
        if self._sandbox is not None:
            self._sandbox.close()
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)

    @cached_property
    def _tasks(self) -> Taskset:
        """Read when a task of a split is asked for: a request's task needs no data."""
        return self._family.taskset()

    @property
    def is_threaded(self) -> bool:
        """Whether judging runs on threads, so that other episodes continue meanwhile."""
        return self._threads is not None

    def size(self, split: Split) -> int | None:
        """Number of tasks in the split; None when it is infinite."""
        return self._tasks.size(split)

    def observe(self, state: bytes, agent: str) -> Observation:
        """What ``agent`` sees in ``state``."""
        return self._environment.observe(state, agent)

    async def reset(
        self, *, split: Split, index: int, observe: Sequence[str], timeout_s: float
    ) -> Start:
        """The first state of a task of a split."""
        return await self.begin(
            lambda: self._tasks.task(split, index),
            f"{split}/{index}",
            observe=observe,
            timeout_s=timeout_s,
        )

    async def begin_request(self, text: str, *, observe: Sequence[str], timeout_s: float) -> Start:
        """The first state of a user's request."""
        return await self.begin(
            lambda: request_task(self._family, text),
            "the request",
            observe=observe,
            timeout_s=timeout_s,
        )

    async def begin(
        self, task: Callable[[], Task], name: str, *, observe: Sequence[str], timeout_s: float
    ) -> Start:
        """The first state of any task; ``name`` is for errors."""

        def first() -> Start:
            start = first_state(self._environment, task(), observe)
            observations = _with_state(start.observations, start.state)
            return replace(start, observations=observations)

        return await self._within(timeout_s, f"reset of {name}", first)

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
            return [
                replace(outcome, observations=_with_state(outcome.observations, outcome.state))
                for outcome in outcomes(self._environment, state, agent, actions, observe)
            ]

        return await self._within(timeout_s, f"judging of {agent}'s action", judge)

    async def observations(
        self, *, state: bytes, observe: Sequence[str], timeout_s: float
    ) -> Mapping[str, Observation]:
        """What the agents in ``observe`` see in ``state``."""

        def look() -> Mapping[str, Observation]:
            return _with_state(observations_of(self._environment, state, observe), state)

        return await self._within(timeout_s, "a look at a state", look)

    async def _within(self, timeout_s: float, operation: str, work: Callable[[], _T]) -> _T:
        if self._threads is None:
            return without_exit(work)
        loop = asyncio.get_running_loop()
        try:
            # The deadline limits the code: waiting for a thread counts against the episode only.
            async with self._free, asyncio.timeout(timeout_s):
                return await loop.run_in_executor(self._threads, without_exit, work)
        except TimeoutError as error:
            raise DeadlineError(
                f"{operation} took longer than {timeout_s:g} s (limits.env_timeout_s an action)"
            ) from error


class ScriptedRollout:
    """RolloutPort of a family's scripted player, which sees the true state of a `LocalEnv`.

    "scripted" demonstrates and "random" acts at random. With ``slips``, every candidate except the
    first is a damaged demonstration, so that rewards differ. With ``observe``, a family without a
    script plays its random actions, or words of the prompt. There are no token ids to train on.

    Raises InvalidArgumentError when the family cannot play.
    """

    def __init__(
        self,
        family: TaskFamily,
        kind: Literal["scripted", "random"] = "scripted",
        *,
        slips: bool = False,
        observe: Callable[[bytes, str], Observation] | None = None,
    ) -> None:
        if observe is not None:
            self._act = scripted_policy(family, observe)
        else:
            self._act = required_policy(
                family,
                "demonstrate" if kind == "scripted" else "random_action",
                needed_by=f"policy '{kind}'",
                instead="evaluate another policy",
            )
        self._slips = slips

    async def generate(
        self, request: GenerateRequest[Observation], *, timeout_s: float
    ) -> Generation:
        """Candidates for an unmodified observation of the environment."""
        observation = request.prompt
        if not isinstance(observation, StateObservation):
            raise InvalidArgumentError(
                "a scripted player acts on what the environment shows, and the workflow shows its "
                "agents something else; let a model play"
            )
        texts = [
            self._text(observation, Random(f"{request.seed}/{i}"), slips=self._slips and i > 0)
            for i in range(request.num_candidates)
        ]
        return text_generation(request, [(text, "stop") for text in texts], (0, 0))

    def _text(self, observation: StateObservation, rng: Random, *, slips: bool) -> str:
        text = without_exit(lambda: self._act(observation.state, observation.agent, rng))
        words = text.split(" ")
        if not slips or len(words) < 2:
            return text
        first, second = rng.randrange(len(words)), rng.randrange(len(words))
        words[first], words[second] = words[second], words[first]
        return " ".join(words[: rng.randint(1, len(words))])


class EngineRollout:
    """RolloutPort on an engine in this process.

    ``served_as`` is the engine's name of the policy; without it, the engine serves every policy
    under the name that the episode requests.
    """

    def __init__(self, engine: Engine, served_as: str | None = None) -> None:
        self._engine = engine
        self._served_as = served_as

    async def generate(
        self, request: GenerateRequest[Observation], *, timeout_s: float
    ) -> Generation:
        """Render and sample, as the rollout service does."""
        policy = self._served_as or request.policy
        try:
            async with asyncio.timeout(timeout_s):
                prompt = await rendered(self._engine, policy, request.prompt)
                asked = request.with_prompt(
                    prompt, observed_images(request.prompt), may_call=bool(tools_of(request.prompt))
                )
                return await self._engine.generate(replace(asked, policy=policy))
        except TimeoutError as error:
            raise DeadlineError(
                f"the engine did not answer within {timeout_s:.0f} s (limits.generate_timeout_s)"
            ) from error


def _with_state(observations: Mapping[str, Observation], state: bytes) -> dict[str, Observation]:
    return {
        agent: StateObservation.of(messages, state, agent)
        for agent, messages in observations.items()
    }
