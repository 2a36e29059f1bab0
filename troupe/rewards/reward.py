"""Defines reward functions; loads and calls the one that a job names.

A reward function judges one transition of one task. It runs where actions are judged (the env
service, or this process in a dry run) and may run again after a retry, so it must be pure: equal
arguments give equal numbers. Never decides the weight of its term: the spec does.
"""

import inspect
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from hashlib import blake2b
from typing import Any, Protocol, get_type_hints

from pydantic import BaseModel, ConfigDict, create_model

from troupe import plugins
from troupe.code_places import raised_at
from troupe.errors import InvalidArgumentError, RewardFailedError, TroupeError
from troupe.finite import is_finite
from troupe.spec.reward import RewardSpec
from troupe.tasks.family import Task, Transition

_MAX_SHOWN = 200
STRICT = "strict"
"""Name of the strict judge's term."""


@dataclass(frozen=True, slots=True)
class JudgedTransition(Transition):
    """A transition and its cause: ``agent`` wrote ``action`` in the state ``before``.

    Example: a reward for short answers returns ``-len(transition.action) / 100``.
    """

    before: bytes = b""
    agent: str = ""
    action: str = ""


class Reward(Protocol):
    """A function of a transition and its task; a class is constructed first, with its ``Params``.

    Example: ``def brevity(transition, task, *, max_words: int = 40) -> float``.
    """

    def __call__(self, transition: JudgedTransition, task: Task) -> float:
        """The reward of the action: a finite number."""
        ...


@dataclass(frozen=True, slots=True)
class NamedReward:
    """A loaded reward function, and the name of its term. It judges ``fraction`` of the actions."""

    kind: str
    term: str
    function: Reward
    fraction: float = 1.0

    def judges(self, transition: JudgedTransition) -> bool:
        """Whether this action is in the share that is judged; a retry gives the same answer."""
        if self.fraction >= 1.0:
            return True
        digest = blake2b(transition.before + transition.action.encode(), digest_size=8).digest()
        return int.from_bytes(digest) < self.fraction * 2**64

    def __call__(self, transition: JudgedTransition, task: Task) -> float:
        """The function's number.

        Raises:
            RewardFailedError: the function raised, or did not return a finite number.
            TroupeError: raised by the function itself, if a service that it calls is down.
        """
        try:
            value: object = self.function(transition, task)
        except TroupeError:
            raise
        except (Exception, SystemExit) as error:  # the latter would end the process
            place = raised_at(error)
            problem = f"raised {type(error).__name__}: {error}{f' (at {place})' if place else ''}"
            raise self._failure(problem, transition, task) from error
        if is_finite(value):
            return float(value)
        raise self._failure(f"gave {value!r}, which is not a finite number", transition, task)

    def _failure(self, problem: str, done: JudgedTransition, task: Task) -> RewardFailedError:
        action = repr(done.action)
        shown = action if len(action) <= _MAX_SHOWN else f"{action[:_MAX_SHOWN]}..."
        return RewardFailedError(
            f"reward function '{self.kind}' {problem}; task {task.id}, agent '{done.agent}', "
            f"action {shown}. Correct the function: it must give a number for every action",
            pointer="/reward/kind",
        )


def load_reward(
    kind: str, params: Mapping[str, Any], *, term: str = "", pointer: str = "/reward"
) -> NamedReward:
    """The reward function ``kind`` with ``params``.

    Raises InvalidArgumentError for an unknown name, and SpecInvalidError whose pointers start at
    ``pointer`` for wrong parameters.
    """
    function: Any = plugins.load(plugins.REWARDS, kind, pointer=f"{pointer}/kind")
    label, at = f"reward function '{kind}'", f"{pointer}/params"
    term = term or RewardSpec(kind=kind).term
    if isinstance(function, type):
        checked = plugins.checked_params(function, params, label=label, pointer=at)
        made = plugins.constructed(function, checked, label=label, pointer=f"{pointer}/kind")
        _check_callable(made, kind, pointer)
        return NamedReward(kind, term, made)
    _check_callable(function, kind, pointer)
    model = _Model(_keyword_params(function, kind, pointer))
    checked = plugins.checked_params(model, params, label=label, pointer=at)
    values = {} if checked is None else dict(checked)
    return NamedReward(kind, term, partial(function, **values) if values else function)


def load_rewards(spec: RewardSpec, *, is_bundled: bool = False) -> tuple[NamedReward, ...]:
    """The function of ``spec``, then its strict judge, as far as it names them.

    ``is_bundled``: ``module:attr`` is code of the job's bundle, which is not loaded here; its term
    has a name and can't be computed. Raises InvalidArgumentError or SpecInvalidError with pointers
    below /reward.
    """
    rewards: list[NamedReward] = []

    def load(kind: str, params: Mapping[str, Any], **more: str) -> NamedReward:
        if is_bundled and ":" in kind:
            return NamedReward(kind, more["term"] or spec.term, _judged_elsewhere)
        return load_reward(kind, params, **more)

    if spec.kind:
        rewards.append(load(spec.kind, spec.params, term=spec.name))
    if strict := spec.strict:
        judge = load(strict.kind, strict.params, term=STRICT, pointer="/reward/strict")
        rewards.append(replace(judge, fraction=strict.fraction))
    return tuple(rewards)


def reward_json(spec: RewardSpec) -> str:
    """The functions of ``spec`` as sent to env services; "" without one.

    Omits the weight, which env services do not need.
    """
    document: dict[str, Any] = {}
    if spec.kind:
        document = {"kind": spec.kind, "name": spec.term, "params": spec.params}
    if spec.strict:
        document["strict"] = spec.strict.model_dump()
    return json.dumps(document, sort_keys=True) if document else ""


def rewards_of_json(text: str) -> tuple[NamedReward, ...]:
    """The functions in the text of ``reward_json``; none for "".

    Raises InvalidArgumentError for anything else.
    """
    if not text:
        return ()
    try:
        spec = RewardSpec.model_validate_json(text)
    except ValueError as error:
        raise InvalidArgumentError(f"reward_json is not a reward function: {error}") from error
    if not (spec.kind or spec.strict):
        raise InvalidArgumentError("reward_json names no reward function; give its kind")
    return load_rewards(spec)


def _judged_elsewhere(transition: JudgedTransition, task: Task) -> float:
    raise InvalidArgumentError(
        "this process can't compute the term: the function's code lies in the job's bundle, which "
        "env services alone load (docs/bundles.md)"
    )


@dataclass(frozen=True, slots=True)
class _Model:
    """Holds a parameter model for ``plugins.checked_params``."""

    Params: type[BaseModel] | None


def _annotated(function: Callable[..., Any]) -> Callable[..., Any]:
    """What holds the annotations of ``function``, which may be a partial or a callable object."""
    while isinstance(function, partial):
        function = function.func
    return function if inspect.isroutine(function) else type(function).__call__


def _check_callable(function: Callable[..., Any], kind: str, pointer: str) -> None:
    """Refuses what gives no number when it is called with a transition and a task."""
    problem = "it is an `async def`"
    try:
        # A decorator's own arguments are what is called, not those of the function inside.
        signature = inspect.signature(function, follow_wrapped=False)
        every = signature.parameters.values()
        positional = [p for p in every if p.kind is not inspect.Parameter.KEYWORD_ONLY]
        signature.replace(parameters=positional).bind(None, None)
        if not inspect.iscoroutinefunction(_annotated(function)):
            return
    except ValueError:  # some built-ins tell no signature
        return
    except TypeError as error:
        problem = str(error)
    raise InvalidArgumentError(
        f"reward function '{kind}' must be a plain `def (transition, task)`: {problem}",
        pointer=f"{pointer}/kind",
    )


def _keyword_params(
    function: Callable[..., Any], kind: str, pointer: str
) -> type[BaseModel] | None:
    """A model of the function's keyword-only arguments; None when it has none."""
    keywords = [
        argument
        for argument in inspect.signature(function).parameters.values()
        if argument.kind is inspect.Parameter.KEYWORD_ONLY
    ]
    if not keywords:
        return None
    try:
        hints = get_type_hints(_annotated(function), include_extras=True)
    except (NameError, TypeError) as error:
        raise InvalidArgumentError(
            f"the annotations of '{kind}' can't be read ({error}); import what they name",
            pointer=f"{pointer}/kind",
        ) from error
    fields: dict[str, Any] = {
        keyword.name: (
            hints.get(keyword.name, Any),
            ... if keyword.default is inspect.Parameter.empty else keyword.default,
        )
        for keyword in keywords
    }
    return create_model("Params", __config__=ConfigDict(frozen=True, extra="forbid"), **fields)
