"""An environment that watches another one: every step of every check is evidence.

Checks what holds for any single step: it returns in time, never raises for what an agent wrote,
and returns values of the shape that the contract promises.
"""

import json
import math
import time
from collections.abc import Callable
from typing import Any, TypeVar

from troupe.conformance.findings import BrokenStepError, Findings, GaveUpError, clipped
from troupe.conformance.limits import CheckLimits
from troupe.conformance.time_limit import Overrun, alarm
from troupe.errors import InvalidArgumentError, TroupeError
from troupe.finite import is_finite
from troupe.tasks.content import ImagePart, TextPart
from troupe.tasks.family import (
    ROLES,
    Environment,
    Message,
    Observation,
    Task,
    TaskFamily,
    Transition,
)
from troupe.vision.wire import images_to_proto

_T = TypeVar("_T")
MAX_OVERRUNS = 5
"""Interrupted steps after which the kit gives up."""


class CheckedEnvironment:
    """Forwards calls to ``env`` and records broken promises.

    A step that raises or overruns is recorded under ``any_text`` or ``step_time`` and raises
    BrokenStepError. A retryable TroupeError is an infrastructure failure and passes through.
    """

    def __init__(
        self, env: Environment, family: TaskFamily, limits: CheckLimits, findings: Findings
    ) -> None:
        self._env = env
        self._family = family
        self._limits = limits
        self._findings = findings
        self.num_steps = 0
        self.slowest_s = 0.0

    def reset(self, task: Task) -> bytes:
        """The first state, watched."""
        state = self._watched("any_text", f"reset({task.id})", lambda: self._env.reset(task))
        self._see_state(state, f"reset({task.id})")
        return state

    def observe(self, state: bytes, agent: str) -> Observation:
        """What an agent sees, watched."""
        label = f"observe(..., {agent!r})"
        observation = self._watched("any_text", label, lambda: self._env.observe(state, agent))
        self._see_messages(observation, label)
        return observation

    def step(self, state: bytes, agent: str, action: str) -> Transition:
        """One judged action, watched."""
        label = f"step(..., {agent!r}, {clipped(action)})"
        self.num_steps += 1
        done = self._watched("any_text", label, lambda: self._env.step(state, agent, action))
        self._see_transition(done, agent, label)
        return done

    def unwatched(self) -> Environment:
        """The environment itself, for calls that must raise."""
        return self._env

    def _watched(self, check: str, label: str, call: Callable[[], _T]) -> _T:
        limit_s = self._limits.step_limit_s or math.inf
        if self._findings.num_overruns >= MAX_OVERRUNS:
            raise GaveUpError
        began = time.perf_counter()
        try:
            # The alarm is later than the limit, so the measurement below reports the common case.
            with alarm(1.5 * limit_s):
                result = call()
        except Overrun:
            self._findings.num_overruns += 1
            self._findings.fail("step_time", f"{label} did not return within {1.5 * limit_s:g} s")
            raise BrokenStepError from None
        except TroupeError as error:
            if error.retryable:
                raise
            self._findings.fail(check, f"{label} raised {_named(error)}")
            raise BrokenStepError from error
        except (Exception, SystemExit) as error:
            self._findings.fail(check, f"{label} raised {_named(error)}")
            raise BrokenStepError from error
        took_s = time.perf_counter() - began
        self.slowest_s = max(self.slowest_s, took_s)
        if took_s > limit_s:
            self._findings.fail("step_time", f"{label} took {took_s:.2f} s; at most {limit_s:g} s")
        return result

    def _see_state(self, state: object, label: str) -> None:
        if not isinstance(state, bytes):
            self._findings.fail("state_bytes", f"{label} gave a {type(state).__name__} as state")
            raise BrokenStepError
        size, limits = len(state), self._limits
        if size > limits.state_fail_bytes:
            self._findings.fail(
                "state_bytes", f"{label} gave {size} bytes; at most {limits.state_fail_bytes}"
            )
        elif size > limits.state_warn_bytes:
            self._findings.warn(
                "state_bytes",
                f"{label} gave {size} bytes of state; games stay below {limits.state_warn_bytes}",
            )

    def _see_transition(self, done: object, agent: str, label: str) -> None:
        if not isinstance(done, Transition):
            self._findings.fail("transition", f"{label} gave a {type(done).__name__}")
            raise BrokenStepError
        self._see_state(done.state, label)
        if not is_finite(done.team_reward):
            self._findings.fail("transition", f"{label}: team_reward is {done.team_reward!r}")
        for flag in ("done", "success"):
            if not isinstance(getattr(done, flag), bool):
                self._findings.fail(
                    "transition", f"{label}: {flag} is {getattr(done, flag)!r}, no bool"
                )
        for name, value in done.local_rewards.items():
            owner, slash, term = name.rpartition("/")
            if term not in self._family.local_terms.get(owner if slash else agent, {}):
                self._findings.fail("local_terms", f"{label}: the term '{name}' is not declared")
            if not is_finite(value):
                self._findings.fail("local_terms", f"{label}: term '{name}' is {value!r}")
        self._see_info(done.info, label)

    def _see_info(self, info: Any, label: str) -> None:
        try:
            text = json.dumps(dict(info), allow_nan=False)
        except (TypeError, ValueError, RecursionError) as error:
            self._findings.fail("info_json", f"{label}: {_named(error)} in {clipped(info)}")
            return
        try:
            text.encode()
        except UnicodeEncodeError as error:
            self._findings.fail("info_json", f"{label}: {_named(error)}")
        if len(text) > self._limits.info_warn_bytes:
            self._findings.warn("info_json", f"{label}: {len(text)} bytes of info")

    def _see_messages(self, observation: object, label: str) -> None:
        def wrong(reason: str) -> None:
            self._findings.fail("messages", f"{label}: {reason}")

        if not isinstance(observation, tuple):
            wrong(f"gave {clipped(observation)}, not a tuple of Messages")
            raise BrokenStepError
        if not observation:
            return
        for message in observation:
            if not isinstance(message, Message) or not _is_content(message.content):
                wrong(f"holds {clipped(message)}, which is no Message")
                raise BrokenStepError
            if message.role not in ROLES:
                wrong(f"has the unknown role '{message.role}'")
            if not (message.text.strip() or message.images or message.tool_calls):
                wrong(f"has an empty {message.role} message")
            try:
                message.described.encode()
            except UnicodeEncodeError as error:
                wrong(f"cannot be sent: {_named(error)}")
        try:
            images_to_proto(message.content for message in observation)
        except InvalidArgumentError as error:
            wrong(f"cannot be sent: {error.message}")
        if any(message.role == "system" for message in observation[1:]):
            wrong("has a system message that is not the first one")
        last = observation[-1].role
        if last not in ("user", "tool"):
            wrong(f"ends with the role '{last}', so no chat template asks for an answer")


def _is_content(content: object) -> bool:
    return isinstance(content, str) or (
        isinstance(content, tuple)
        and all(isinstance(part, TextPart | ImagePart) for part in content)
    )


def _named(error: BaseException) -> str:
    return f"{type(error).__name__}: {clipped(str(error))}"
