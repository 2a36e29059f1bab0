"""A task family whose transitions carry the additional term of a job's reward function.

A state is then the family's state behind the reference of its task ("train/7\\n"), because a
reward function receives the task and an environment keeps no state; a task of a user's request,
which no split holds, is written out there as JSON. Everything else is the
family's. Never applies weights: ``local_terms`` holds them, and the mix applies them.
"""

import json
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from functools import lru_cache
from random import Random
from typing import Any

from troupe.errors import InvalidArgumentError
from troupe.rewards.reward import STRICT, JudgedTransition, NamedReward, load_rewards
from troupe.sandbox.sandbox import Sandbox
from troupe.spec.issues import Issue, SpecInvalidError
from troupe.spec.reward import RewardSpec
from troupe.tasks.family import (
    SPLITS,
    Environment,
    Observation,
    Task,
    TaskFamily,
    Taskset,
    Transition,
    close_environment,
    needs_sandbox,
)

_KEPT_TASKS = 256
"""Tasks that an environment caches, so that an episode makes its task once."""


def with_reward(family: TaskFamily, spec: RewardSpec, *, is_bundled: bool = False) -> TaskFamily:
    """``family`` with the terms of the functions that ``spec`` names; itself without one.

    The strict judge's term weighs nothing. ``is_bundled``: the job has a bundle, whose functions
    are named and not loaded. Raises InvalidArgumentError or SpecInvalidError with
    pointers below /reward.
    """
    rewards = load_rewards(spec, is_bundled=is_bundled)
    if not rewards:
        return family
    names = [reward.term for reward in rewards]
    for term in names:
        is_taken = any(term in own for own in family.local_terms.values())
        if is_taken or names.count(term) > 1:
            message = f"task '{family.name}' has a term '{term}' already; give another name"
            raise SpecInvalidError([Issue("/reward/name", message)])
    is_kept = spec.mode == "add"
    added = {reward.term: 0.0 if reward.term == STRICT else spec.weight for reward in rewards}
    weights = {
        agent: {
            **{term: weight if is_kept else 0.0 for term, weight in terms.items()},
            **added,
        }
        for agent, terms in family.local_terms.items()
    }
    return rewarded(family, rewards, weights)


def rewarded(
    family: TaskFamily,
    rewards: Sequence[NamedReward],
    local_terms: Mapping[str, Mapping[str, float]] | None = None,
) -> TaskFamily:
    """``family`` with the terms of ``rewards``; it tells the weights ``local_terms`` if given."""
    kind: Any = _RewardedPrograms if needs_sandbox(family) else _RewardedFamily
    return kind(family, rewards, local_terms or family.local_terms)


class _RewardedFamily:
    """A family that judges in this process."""

    def __init__(
        self,
        family: TaskFamily,
        rewards: Sequence[NamedReward],
        local_terms: Mapping[str, Mapping[str, float]],
    ) -> None:
        self._family = family
        self._rewards = rewards
        self.name = family.name
        self.local_terms = local_terms
        # Of the optional parts only these two take a state, and both may be missing.
        for act in ("demonstrate", "random_action"):
            if hasattr(family, act):
                setattr(self, act, _on_bare_states(getattr(family, act)))

    def __getattr__(self, name: str) -> Any:
        """Any other attribute of the family."""
        return getattr(self._family, name)

    def environment(self) -> Environment:
        """The family's environment, followed by the reward function."""
        return self._rewarding(self._family.environment())

    def _rewarding(self, environment: Environment) -> Environment:
        return _RewardingEnvironment(environment, self._family.taskset(), self._rewards)


class _RewardedPrograms(_RewardedFamily):
    """A family whose environment runs programs."""

    def environment_in(self, sandbox: Sandbox) -> Environment:
        """The family's environment on ``sandbox``, followed by the reward function."""
        family: Any = self._family
        return self._rewarding(family.environment_in(sandbox))


class _RewardingEnvironment:
    """See ``troupe.tasks.family.Environment``."""

    def __init__(
        self, environment: Environment, taskset: Taskset, rewards: Sequence[NamedReward]
    ) -> None:
        self._environment = environment
        self._rewards = rewards
        self._task = lru_cache(_KEPT_TASKS)(taskset.task)

    def reset(self, task: Task) -> bytes:
        """The family's first state, after the reference to its task."""
        return _referenced(self._reference(task), self._environment.reset(task))

    def observe(self, state: bytes, agent: str) -> Observation:
        """The family's observation."""
        return self._environment.observe(_split(state)[1], agent)

    def step(self, state: bytes, agent: str, action: str) -> Transition:
        """The family's transition with one more term of each function."""
        reference, before = _split(state)
        task = self._task_of(reference)
        done = self._environment.step(before, agent, action)
        judged = JudgedTransition(
            done.state,
            done.team_reward,
            done.local_rewards,
            done.done,
            done.success,
            done.info,
            before=before,
            agent=agent,
            action=action,
        )
        values = {r.term: r(judged, task) for r in self._rewards if r.judges(judged)}
        return replace(
            done,
            state=_referenced(reference, done.state),
            local_rewards={**done.local_rewards, **values},
        )

    def close(self) -> None:
        """Close what the family's environment holds."""
        close_environment(self._environment)

    def _reference(self, task: Task) -> bytes:
        # A family's splits may lack the index that the task of a request has, in any way.
        with suppress(Exception):
            if self._task(task.split, task.index) == task:
                return f"{task.split}/{task.index}".encode()
        return _written(task)

    def _task_of(self, reference: bytes) -> Task:
        if reference.startswith(b"{"):
            return _read(reference)
        name, _, index = reference.decode("ascii", "replace").partition("/")
        for split in SPLITS:
            if split == name and index.isdecimal():
                return self._task(split, int(index))
        raise _no_task(reference)


def _written(task: Task) -> bytes:
    return json.dumps({**asdict(task), "payload": b64encode(task.payload).decode()}).encode()


def _read(written: bytes) -> Task:
    try:
        fields: dict[str, Any] = json.loads(written)
        fields["payload"] = b64decode(fields["payload"])
        return Task(**fields)
    except (ValueError, LookupError, TypeError, RecursionError) as error:
        raise _no_task(written) from error


def _no_task(reference: bytes) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"the state does not begin with its task ({reference[:40]!r}): it was made without the "
        "job's reward function; begin the episode again with Reset",
        pointer="/state",
    )


def _referenced(reference: bytes, state: bytes) -> bytes:
    return reference + b"\n" + state


def _split(state: bytes) -> tuple[bytes, bytes]:
    reference, _, bare = state.partition(b"\n")
    return reference, bare


def _on_bare_states(act: Any) -> Any:
    """``demonstrate`` or ``random_action`` on states that carry a reference to their task."""

    def acted(state: bytes, agent: str, rng: Random) -> str:
        return act(_split(state)[1], agent, rng)

    return acted
