"""A cache of constructed task families; the least recently used is evicted first.

Any family may be requested at any time; the family itself checks its parameters.
"""

import asyncio
import json
from collections import OrderedDict
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any

from troupe import plugins
from troupe.bundles.planned import check_facts
from troupe.bundles.user_error import user_error
from troupe.episodes.dryrun import dry_run, episode_document
from troupe.errors import InvalidArgumentError, NotFoundError, TroupeError
from troupe.rewards.family import rewarded
from troupe.rewards.reward import rewards_of_json
from troupe.runtime.telemetry import metrics
from troupe.runtime.transient import is_transient
from troupe.sandbox.sandbox import Sandbox
from troupe.spec.issues import SpecInvalidError
from troupe.spec.job import JobSpec
from troupe.tasks.family import (
    Environment,
    TaskFamily,
    Taskset,
    close_environment,
    needs_sandbox,
)
from troupe.tasks.registry import load_family, make_environment
from troupe_env.seals import Seals


class Uses:
    """Counts who judges with an environment; one that was evicted is closed by the last of them."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self._lock = Lock()
        self._num = 0
        self._is_evicted = False

    @contextmanager
    def one(self) -> Generator[None]:
        """Keep the environment open for the block."""
        self._changed(+1)
        try:
            yield
        finally:
            self._changed(-1)

    def evict(self) -> None:
        """Close the environment once nobody judges with it."""
        self._is_evicted = True
        self._changed(0)

    def _changed(self, by: int) -> None:
        with self._lock:
            self._num += by
            is_over = self._is_evicted and self._num == 0
        if is_over:
            close_environment(self._environment)


@dataclass(frozen=True, slots=True)
class Loaded:
    """One constructed family."""

    family: TaskFamily
    taskset: Taskset
    environment: Environment
    seals: Seals
    uses: Uses


class Families:
    """A bounded cache of constructed families; safe to use from several threads.

    ``sandbox`` opens the sandbox; it is called only for a family that runs programs.
    """

    def __init__(
        self, max_size: int, sandbox: Callable[[], Sandbox] | None = None, *, bundle: str = ""
    ) -> None:
        self._max_size = max_size
        self._sandbox = sandbox
        self._bundle = bundle
        self._lock = Lock()
        self._loaded: OrderedDict[tuple[str, ...], Loaded] = OrderedDict()

    def get(
        self, name: str, params_json: str, reward_json: str = "", facts_json: str = ""
    ) -> Loaded:
        """The family ``name`` with the parameters in ``params_json`` (empty means none), and the
        term of the reward function in ``reward_json`` (see ``troupe.rewards.reward``).

        Raises:
            NotFoundError: there is no such family.
            InvalidArgumentError: the parameters are not what the family or the function takes, or
                the family is not as ``facts_json`` says.
        """
        if loaded := self.cached(name, params_json, reward_json, facts_json):
            return loaded
        params = _params(params_json)
        key = _key(name, params, reward_json, facts_json)
        made = self._load(name, params, reward_json, facts_json)
        evicted: list[Loaded] = []
        with self._lock:
            loaded = self._loaded.setdefault(key, made)
            if loaded is not made:  # another thread was first
                evicted.append(made)
            self._loaded.move_to_end(key)
            while len(self._loaded) > self._max_size:
                evicted.append(self._loaded.popitem(last=False)[1])
            metrics.ENV_FAMILIES.set(len(self._loaded))
        for old in evicted:
            old.uses.evict()
        return loaded

    def dry_run(self, spec_json: str, num_tasks: int) -> list[str]:
        """Episodes of the job in ``spec_json``, each as JSON, with scripted agents; in a thread."""
        spec = JobSpec.model_validate_json(spec_json).model_copy(update={"bundle": None})
        with self._blaming_the_bundle():
            episodes = asyncio.run(dry_run(spec, num_tasks=num_tasks, open_sandbox=self._sandbox))
        return [json.dumps(episode_document(episode)) for episode in episodes]

    def close(self) -> None:
        """Close every environment that holds processes."""
        with self._lock:
            closing = list(self._loaded.values())
            self._loaded.clear()
        for loaded in closing:
            close_environment(loaded.environment)

    def cached(
        self, name: str, params_json: str, reward_json: str = "", facts_json: str = ""
    ) -> Loaded | None:
        """The family if it is already constructed: fast enough for the event loop."""
        key = _key(name, _params(params_json), reward_json, facts_json)
        with self._lock:
            loaded = self._loaded.get(key)
            if loaded is not None:
                self._loaded.move_to_end(key)
        return loaded

    def _load(self, name: str, params: dict[str, Any], reward_json: str, facts_json: str) -> Loaded:
        # A seal keeps its two-part form where there is neither a reward function nor a bundle.
        more = [part for part in (reward_json, self._bundle) if part]
        with self._blaming_the_bundle():
            try:
                plugins.load(plugins.TASKS, name)
            except InvalidArgumentError as error:
                if self._bundle:
                    raise
                raise NotFoundError(error.message) from error
            try:
                family = load_family(name, params)
                rewards = rewards_of_json(reward_json)
            except SpecInvalidError as error:
                raise InvalidArgumentError(error.message, pointer=error.pointer) from error
            if facts_json:
                check_facts(family, facts_json)
            if rewards:
                family = rewarded(family, rewards)
            needs = needs_sandbox(family)
            if needs and self._bundle:
                raise InvalidArgumentError(
                    f"task '{name}' runs programs in the sandbox, which a bundle's process can't "
                    "open; have the operator install the code as a package (docs/bundles.md)"
                )
            opened = self._sandbox() if self._sandbox and needs else None
            environment = make_environment(family, opened)
            seals = Seals(*_key(name, params, *more))
            return Loaded(family, family.taskset(), environment, seals, Uses(environment))

    @contextmanager
    def _blaming_the_bundle(self) -> Generator[None]:
        """What a bundle's code raises, whatever it is, is the fault of the code."""
        try:
            yield
        except TroupeError:
            raise
        except BaseException as error:
            if not self._bundle or (isinstance(error, Exception) and is_transient(error)):
                raise
            raise InvalidArgumentError(
                f"the bundle can't be used: {user_error(error, Path.cwd())}"
            ) from error


def _key(name: str, params: dict[str, Any], *more: str) -> tuple[str, ...]:
    return name, json.dumps(params, sort_keys=True), *more


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
