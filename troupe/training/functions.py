"""The caller's functions as an environment: what agents see, what an answer pays, when it ends.

A state is JSON: the row's place, the answers so far, and what each agent sees next. Calls are made
one at a time, so the functions need not be safe for threads. Never does I/O.
"""

import inspect
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from numbers import Real
from threading import Lock
from typing import TypedDict, cast

from troupe.code_places import defined_at, raised_at
from troupe.errors import InvalidArgumentError, RewardFailedError
from troupe.finite import is_finite
from troupe.tasks.agents import known_agent
from troupe.tasks.family import ROLES, SPLITS, Split
from troupe.training.dataset import Row, TaskRows

Answer = dict[str, str]
"""What one agent wrote: ``{"agent": name, "text": text}``."""

Texts = dict[str, str]
"""The texts of a turn by agent; of an agent that has not written yet, none."""

Shown = list[dict[str, str]]
"""A prompt: chat messages, ``{"role": ..., "content": ...}``."""

Rewards = float | Mapping[str, float]
"""A reward for the team, or one for each agent by name."""


class State(TypedDict):
    """State of one episode."""

    split: Split
    index: int
    history: list[Answer]
    shown: dict[str, Shown]
    is_done: bool
    is_success: bool


class Judgement(TypedDict):
    """What one answer did."""

    state: State
    team_reward: float
    local_rewards: dict[str, float]


@dataclass(frozen=True, slots=True)
class Functions:
    """What the caller gives. Every function gets the row first.

    ``reward(row, texts)`` is called when every agent has written in a turn and returns a number,
    or a number for each agent. ``observe(row, agent, history)`` returns a text or chat messages,
    for each agent in each state; ``history`` holds the answers so far. ``done(row, history)`` ends
    an episode before ``max_turns``. ``success(row, texts)`` says whether the task is solved; a
    number is the least reward of a solved one: where each agent has one, the least mean over
    agents.
    """

    reward: Callable[[Row, Texts], Rewards]
    observe: Callable[[Row, str, list[Answer]], object] | None = None
    done: Callable[[Row, list[Answer]], bool] | None = None
    success: Callable[[Row, Texts], bool] | float | None = None

    def __post_init__(self) -> None:
        """Check how many arguments each function takes."""
        _check_arguments("reward", self.reward, ("row", "texts"))
        _check_arguments("observe", self.observe, ("row", "agent", "history"))
        _check_arguments("done", self.done, ("row", "history"))
        if not isinstance(self.success, Real):
            _check_arguments("success", self.success, ("row", "texts"))
        elif math.isnan(self.success):
            raise InvalidArgumentError(
                "success is NaN, which no reward reaches; give the least reward of a solved task"
            )

    def given(self) -> dict[str, bool]:
        """Which of the functions that may be left out there are, as a run records it."""
        return {
            "has_observe": self.observe is not None,
            "has_done": self.done is not None,
            "has_success": self.success is not None,
        }


@dataclass(slots=True)
class CallerEnvironment:
    """Rows, agents and functions as ``reset`` and ``step`` over JSON states.

    ``agents`` maps each agent to its instruction, in the order in which they act. ``failure`` is
    the newest exception that a function raised.
    """

    rows: TaskRows
    agents: Mapping[str, str]
    functions: Functions
    max_turns: int = 1
    failure: BaseException | None = None
    _lock: Lock = field(default_factory=Lock)

    def check(self) -> None:
        """Show agents every row by the usual prompt, or the first one by ``observe``.

        Raises InvalidArgumentError or RewardFailedError before a job begins, not in its middle.
        """
        if self.max_turns > 1 and self.functions.observe is None:
            raise InvalidArgumentError(
                "max_turns > 1 needs observe=lambda row, agent, history: ..., which shows an agent "
                "what was written before"
            )
        rows = [*self.rows.train, *self.rows.held_out]
        for row in rows if self.functions.observe is None else rows[:1]:
            for agent in self.agents:
                self._shown(row, agent, [])

    def reset(self, split: str, index: int) -> State:
        """First state of the row at ``index``; raises InvalidArgumentError when there is none."""
        if split not in SPLITS or not 0 <= index < len(self.rows.of_split(split)):
            raise InvalidArgumentError(f"there is no row {index} in split '{split}'")
        with self._lock:
            return self._state(split, index, [], is_done=False, is_success=False)

    def step(self, state: State, agent: str, action: str) -> Judgement:
        """Judge one answer; raises RewardFailedError when a function raises."""
        known_agent(agent, self.agents, task="the task")
        if state["is_done"]:
            return {"state": state, "team_reward": 0.0, "local_rewards": {}}
        with self._lock:
            return self._judged(state, agent, action)

    def cause_of(self, reason: str) -> BaseException | None:
        """What a function raised, if that is the ``reason`` for which the job failed."""
        is_told = f"raised {type(self.failure).__name__}: " in reason
        return self.failure if is_told else None

    def _judged(self, state: State, agent: str, action: str) -> Judgement:
        row = self._row(state)
        history = [*state["history"], {"agent": agent, "text": action}]
        texts = self._texts(history)
        if len(texts) < len(self.agents):
            return {
                "state": self._state(state["split"], state["index"], history),
                "team_reward": 0.0,
                "local_rewards": {},
            }
        team, by_agent = self._rewards(row, texts)
        reward = statistics.fmean(by_agent.values()) if by_agent else team
        is_success = self._is_success(row, texts, reward)
        is_last = len(history) >= self.max_turns * len(self.agents)
        is_done = is_last or is_success or self._is_done(row, history)
        place = state["split"], state["index"]
        return {
            "state": self._state(*place, history, is_done=is_done, is_success=is_success),
            "team_reward": team,
            "local_rewards": {f"{name}/reward": value for name, value in by_agent.items()},
        }

    def _texts(self, history: Sequence[Answer]) -> Texts:
        """The answers of the present turn: those after the last whole turn."""
        begun = (len(history) - 1) // len(self.agents) * len(self.agents)
        return {answer["agent"]: answer["text"] for answer in history[begun:]}

    def _state(
        self,
        split: Split,
        index: int,
        history: list[Answer],
        *,
        is_done: bool = False,
        is_success: bool = False,
    ) -> State:
        row = self.rows.of_split(split)[index]
        shown = (
            {} if is_done else {agent: self._shown(row, agent, history) for agent in self.agents}
        )
        return {
            "split": split,
            "index": index,
            "history": history,
            "shown": shown,
            "is_done": is_done,
            "is_success": is_success,
        }

    def _row(self, state: State) -> Row:
        return self.rows.of_split(state["split"])[state["index"]]

    def _shown(self, row: Row, agent: str, history: list[Answer]) -> Shown:
        if self.functions.observe is None:
            return usual_prompt(row, self.agents[agent])
        shown = self._call("observe", self.functions.observe, row, agent, history)
        try:
            return _messages(shown, agent)
        except InvalidArgumentError as error:
            raise self._wrong("observe", error.message, row) from error

    def _rewards(self, row: Row, texts: Texts) -> tuple[float, dict[str, float]]:
        """The team's reward and rewards by agent."""
        value = self._call("reward", self.functions.reward, row, texts)
        if isinstance(value, Mapping):
            by_agent = cast("Mapping[str, object]", value)
            if unknown := sorted(set(map(str, by_agent)) - set(self.agents)):
                raise self._wrong("reward", f"names {', '.join(unknown)}, which are no agents", row)
            numbers = {name: self._number(reward, row) for name, reward in by_agent.items()}
            if missing := [agent for agent in self.agents if agent not in numbers]:
                problem = f"gave {value!r}, without a number for {', '.join(missing)}"
                raise self._wrong("reward", problem, row)
            return 0.0, numbers
        return self._number(value, row), {}

    def _number(self, value: object, row: Row) -> float:
        if is_finite(value):
            return float(cast("float", value))
        raise self._wrong("reward", f"gave {value!r}, which is not a finite number", row)

    def _is_success(self, row: Row, texts: Texts, reward: float) -> bool:
        success = self.functions.success
        if success is None:
            return False
        if callable(success):
            return self._is_true("success", self._call("success", success, row, texts), row)
        return reward >= float(success)  # a number of numpy gives no bool of Python

    def _is_done(self, row: Row, history: list[Answer]) -> bool:
        done = self.functions.done
        return done is not None and self._is_true(
            "done", self._call("done", done, row, history), row
        )

    def _is_true(self, name: str, value: object, row: Row) -> bool:
        """A forgotten ``return`` gives None, which must not count as False."""
        answer = _plain(value)
        if isinstance(answer, bool):
            return answer
        raise self._wrong(name, f"gave {value!r}, which is neither True nor False", row)

    def _call(self, name: str, function: Callable[..., object], *arguments: object) -> object:
        try:
            # A function may change what it is given, and rows and history are read again.
            return function(*deepcopy(arguments))
        except (Exception, SystemExit) as error:  # the latter would end the thread without a word
            self.failure = error
            row = cast("Row", arguments[0])
            problem = f"raised {type(error).__name__}: {error}"
            raise self._wrong(name, problem, row, raised_at(error)) from error

    def _wrong(self, name: str, problem: str, row: Row, place: str = "") -> RewardFailedError:
        place = place or defined_at(getattr(self.functions, name))
        shown = repr(row)
        return RewardFailedError(
            f"{name}() {problem}{f' (at {place})' if place else ''}; "
            f"row {shown if len(shown) <= 200 else shown[:200] + '...'}. "
            f"Correct {name}: it must work for every row and every text that a model may write"
        )


def usual_prompt(row: Row, instruction: str) -> Shown:
    """The instruction as system message, then the row's ``prompt``: a text or chat messages.

    Raises InvalidArgumentError for a row without one.
    """
    prompt = row.get("prompt")
    if not isinstance(prompt, str | list) or not prompt:
        raise InvalidArgumentError(
            f"a row has no 'prompt' (its fields: {', '.join(sorted(row)) or 'none'}); name the "
            "field 'prompt', or give observe=lambda row, agent, history: ..."
        )
    messages: Shown = [{"role": "system", "content": instruction}] if instruction else []
    return [*messages, *_messages(cast("object", prompt), "prompt")]


def _messages(shown: object, label: str) -> Shown:
    if isinstance(shown, str) and shown:
        return [{"role": "user", "content": shown}]
    if isinstance(shown, Sequence) and not isinstance(shown, str):
        messages = [_message(m, label) for m in cast("Sequence[object]", shown)]
        if messages:
            return messages
    raise InvalidArgumentError(
        f"gave {shown!r} for {label}; give a text, or chat messages such as "
        '[{"role": "user", "content": "..."}]'
    )


def _message(message: object, label: str) -> dict[str, str]:
    if isinstance(message, Mapping):
        fields = cast("Mapping[str, object]", message)
        role, content = fields.get("role"), fields.get("content")
        if role in ROLES and isinstance(content, str):
            return {"role": str(role), "content": content}
    raise InvalidArgumentError(
        f"gave {message!r}, which is no chat message of {label}; give a dict "
        f"of role ({', '.join(ROLES)}) and content (a text)"
    )


def _plain(value: object) -> object:
    """The Python number or bool in a scalar of numpy or torch; any other value as it is."""
    if isinstance(value, bool | Real) or not hasattr(value, "item"):
        return value
    try:
        return cast("Callable[[], object]", getattr(value, "item"))()  # noqa: B009
    except (TypeError, ValueError, RuntimeError):
        return value  # of several elements


def _check_arguments(name: str, function: object, arguments: tuple[str, ...]) -> None:
    if function is None and name != "reward":
        return
    form = f"{name}({', '.join(arguments)})"
    if not callable(function):
        raise InvalidArgumentError(f"{name} is a {type(function).__name__}; give a function {form}")
    try:
        inspect.signature(function).bind(*arguments)
    except TypeError as error:
        raise InvalidArgumentError(
            f"{name} cannot be called as {form}: {error}; change its arguments"
        ) from error
    except ValueError:
        return  # a built-in function without a signature
