"""A task family in one class: states are JSON, tasks are drawn, splits are disjoint.

For more (states of another form, tasks from files, programs in a sandbox) write a ``TaskFamily``;
nothing else in Troupe knows this class.
"""

import json
import re
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any, ClassVar, cast

from pydantic import BaseModel, Field

from troupe.errors import InvalidArgumentError
from troupe.spec.params import Params
from troupe.tasks.agents import known_agent
from troupe.tasks.family import Message, Observation, Split, Task, Transition
from troupe.tasks.splits import DrawnTaskset, split_of_key


class TaskParams(Params):
    """Parameters in ``task.params`` of a job spec; subclass it to add some."""

    seed: int = Field(default=0, description="Seed of the task generator.")


class SimpleTask:
    """Write ``draw``, ``observe`` and ``step``; everything else has a default.

    ``terms``: local reward terms of every agent with their weights; ``local_terms``: those of each
    agent, where they differ. ``return_bound``: the largest team reward of one episode. An episode
    that is over stays over and pays nothing more: ``step`` is not called again.

    Example: examples/smallest_task.py.
    """

    name: ClassVar[str] = ""
    agents: ClassVar[tuple[str, ...]] = ("agent",)
    Params: ClassVar[type[BaseModel]] = TaskParams
    terms: ClassVar[Mapping[str, float]] = {}
    local_terms: ClassVar[Mapping[str, Mapping[str, float]]] = {"agent": {}}
    return_bound: ClassVar[float] = 1.0

    def __init_subclass__(cls) -> None:
        """Name the task after its class, and assign every agent its terms.

        An agent has those of a base class's ``local_terms``, unless ``terms`` are declared nearer.
        """
        super().__init_subclass__()
        if isinstance(cls.agents, str):
            raise TypeError(
                f"{cls.__name__}.agents is a text, whose letters would be the agents; write "
                f'agents = ("{cls.agents}",)'
            )
        if not cls.__dict__.get("name"):
            cls.name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", cls.__name__).lower()
        if "local_terms" not in cls.__dict__:
            nearest = next(c for c in cls.__mro__ if {"terms", "local_terms"} & vars(c).keys())
            inherited = cls.local_terms if "local_terms" in vars(nearest) else {}
            cls.local_terms = {a: dict(inherited.get(a, cls.terms)) for a in cls.agents}

    def __init__(self, params: BaseModel | None = None) -> None:
        self.params: Any = self.Params() if params is None else params

    def draw(self, rng: Random) -> Any:
        """The first state of one task, as JSON values; equal draws are one task."""
        raise NotImplementedError(f"{type(self).__name__} has no draw(rng): the tasks")

    def observe(self, state: Any, agent: str) -> str | Observation:
        """What ``agent`` sees; "" when another agent is to move."""
        raise NotImplementedError(f"{type(self).__name__} has no observe(state, agent)")

    def step(self, state: Any, agent: str, action: str) -> Transition:
        """The result of ``action``: ``self.transition(...)``. Any text is judged, none raises."""
        raise NotImplementedError(f"{type(self).__name__} has no step(state, agent, action)")

    def request(self, text: str) -> Any:
        """The first state of a task of a user's ``text``, any text; optional, for ``troupe serve``.

        Nobody knows its answer: ``step`` pays no action of it as right.
        """
        raise InvalidArgumentError(
            f"task '{self.name}' has no request(text): the first state of a task of a user's text. "
            "So its team cannot play a request; write it, or ask the agents one by one"
        )

    def request_task(self, text: str) -> Task:
        """The task that begins with ``request(text)``."""
        return Task("request", "test", 0, pack_state(self.request(text)))

    def transition(
        self,
        state: Any,
        reward: float = 0.0,
        *,
        done: bool = False,
        success: bool = False,
        info: Mapping[str, Any] | None = None,
        **terms: float,
    ) -> Transition:
        """A transition to ``state``: ``reward`` for the team, ``terms`` for the acting agent."""
        for name, paid in {"reward": reward, **terms}.items():
            if not hasattr(paid, "__float__"):  # float() takes texts, too
                raise TypeError(f"transition() was given {name}={paid!r}; give a number")
        flags: dict[str, object] = {"done": done, "success": success}
        for name, flag in flags.items():
            if not isinstance(flag, int):  # 0 and 1 are taken for what they mean
                raise TypeError(f"transition() was given {name}={flag!r}; give True or False")
        packed = pack_state(state, done=done, success=success)
        return Transition(packed, float(reward), terms, done, success, info or {})

    def taskset(self) -> DrawnTaskset:
        """Infinite tasks; the hash of a first state decides its split."""
        seed = int(getattr(self.params, "seed", 0))
        return DrawnTaskset(self.name, seed, self._candidate, hint="let draw() give more variety")

    def environment(self) -> "JsonEnvironment":
        """The environment that judges the actions of these tasks."""
        return JsonEnvironment(self)

    def _candidate(self, rng: Random, split: Split) -> bytes | None:
        first = pack_state(self.draw(rng), done=False, success=False)
        return first if split_of_key(first.decode()) == split else None


class JsonEnvironment:
    """``SimpleTask``'s own methods on states that travel as bytes."""

    def __init__(self, task: SimpleTask) -> None:
        self._task = task

    def reset(self, task: Task) -> bytes:
        """The payload is the first state."""
        return task.payload

    def observe(self, state: bytes, agent: str) -> Observation:
        """A text becomes one user message."""
        value, *_ = self._unpacked(state, agent)
        observation = cast("object", self._task.observe(value, agent))
        if isinstance(observation, str):
            return (Message("user", observation),) if observation else ()
        if isinstance(observation, Sequence):
            messages = cast("Sequence[object]", observation)
            if all(isinstance(message, Message) for message in messages):
                return cast("Observation", observation)
        raise self._wrong("observe", observation, "give a text or a tuple of troupe.Message")

    def step(self, state: bytes, agent: str, action: str) -> Transition:
        """Calls the task's ``step`` unless the episode is over."""
        value, done, success = self._unpacked(state, agent)
        if done:
            return Transition(state, 0.0, {}, True, success)
        made = cast("object", self._task.step(value, agent, action))
        if isinstance(made, Transition):
            return made
        raise self._wrong("step", made, "return self.transition(...)")

    def _wrong(self, method: str, returned: object, remedy: str) -> TypeError:
        kind = "None" if returned is None else f"a {type(returned).__name__}"
        return TypeError(f"{type(self._task).__name__}.{method} returned {kind}; {remedy}")

    def _unpacked(self, state: bytes, agent: str) -> tuple[Any, bool, bool]:
        known_agent(agent, self._task.agents, task=self._task.name)
        value, done, success = json.loads(state)
        return value, done, success


def state_value(state: bytes) -> Any:
    """The JSON value in the state bytes of a ``SimpleTask``, for rewards and scripts."""
    return json.loads(state)[0]


def pack_state(value: Any, *, done: bool = False, success: bool = False) -> bytes:
    """State bytes of a ``SimpleTask`` around a JSON value; raises TypeError around another."""
    try:
        return json.dumps([value, done, success], sort_keys=True, separators=(",", ":")).encode()
    except TypeError as error:
        raise TypeError(f"a state must be JSON values ({error}): {value!r:.200}") from error
