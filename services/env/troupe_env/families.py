"""A cache of constructed task families; the least recently used is evicted first.

Any family may be requested at any time; the family itself checks its parameters.
"""

import json
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from threading import Lock
from typing import Any

from troupe import plugins
from troupe.errors import InvalidArgumentError, NotFoundError
from troupe.rewards.family import rewarded
from troupe.rewards.reward import rewards_of_json
from troupe.runtime.telemetry import metrics
from troupe.sandbox.sandbox import Sandbox
from troupe.spec.issues import SpecInvalidError
from troupe.tasks.family import (
    Environment,
    TaskFamily,
    Taskset,
    close_environment,
    needs_sandbox,
)
from troupe.tasks.registry import load_family, make_environment
from troupe_env.seals import Seals


@dataclass(frozen=True, slots=True)
class Loaded:
    """One constructed family."""

    family: TaskFamily
    taskset: Taskset
    environment: Environment
    seals: Seals


class Families:
    """A bounded cache of constructed families; safe to use from several threads.

    ``sandbox`` opens the sandbox; it is called only for a family that runs programs.
    """

    def __init__(self, max_size: int, sandbox: Callable[[], Sandbox] | None = None) -> None:
        self._max_size = max_size
        self._sandbox = sandbox
        self._lock = Lock()
        self._loaded: OrderedDict[tuple[str, ...], Loaded] = OrderedDict()

    def get(self, name: str, params_json: str, reward_json: str = "") -> Loaded:
        """The family ``name`` with the parameters in ``params_json`` (empty means none), and the
        term of the reward function in ``reward_json`` (see ``troupe.rewards.reward``).

        Raises:
            NotFoundError: there is no such family.
            InvalidArgumentError: the parameters are not what the family or the function takes.
        """
        if loaded := self.cached(name, params_json, reward_json):
            return loaded
        params = _params(params_json)
        key = _key(name, params, reward_json)
        loaded = _load(key, params, self._sandbox)
        evicted: list[Loaded] = []
        with self._lock:
            loaded = self._loaded.setdefault(key, loaded)
            self._loaded.move_to_end(key)
            while len(self._loaded) > self._max_size:
                evicted.append(self._loaded.popitem(last=False)[1])
            metrics.ENV_FAMILIES.set(len(self._loaded))
        for old in evicted:
            close_environment(old.environment)
        return loaded

    def close(self) -> None:
        """Close every environment that holds processes."""
        with self._lock:
            closing = list(self._loaded.values())
            self._loaded.clear()
        for loaded in closing:
            close_environment(loaded.environment)

    def cached(self, name: str, params_json: str, reward_json: str = "") -> Loaded | None:
        """The family if it is already constructed: fast enough for the event loop."""
        key = _key(name, _params(params_json), reward_json)
        with self._lock:
            loaded = self._loaded.get(key)
            if loaded is not None:
                self._loaded.move_to_end(key)
        return loaded


def _key(name: str, params: dict[str, Any], reward_json: str) -> tuple[str, ...]:
    """The seal's key: without a reward function it keeps its two-part form."""
    key = name, json.dumps(params, sort_keys=True)
    return (*key, reward_json) if reward_json else key


def _params(params_json: str) -> dict[str, Any]:
    try:
        params = json.loads(params_json) if params_json else {}
    except (ValueError, RecursionError) as error:
        raise InvalidArgumentError(f"params_json is not JSON: {error}.") from error
    if not isinstance(params, dict):
        raise InvalidArgumentError(
            f"params_json holds a JSON {type(params).__name__}; give an object of parameters."
        )
    return params


def _load(
    key: tuple[str, ...], params: dict[str, Any], sandbox: Callable[[], Sandbox] | None
) -> Loaded:
    name, reward_json = key[0], key[2] if len(key) > 2 else ""
    try:
        plugins.load(plugins.TASKS, name)
    except InvalidArgumentError as error:
        raise NotFoundError(error.message) from error
    try:
        family = load_family(name, params)
        rewards = rewards_of_json(reward_json)
    except SpecInvalidError as error:
        raise InvalidArgumentError(error.message, pointer=error.pointer) from error
    if rewards:
        family = rewarded(family, rewards)
    opened = sandbox() if sandbox and needs_sandbox(family) else None
    environment = make_environment(family, opened)
    return Loaded(family, family.taskset(), environment, Seals(*key))
