"""The contract of a task family: tasks, and an environment that is a pure function.

Owns the value types that cross from a task to the rest of Troupe. Never does I/O, and never
names an algorithm: an environment judges one action at a time and forgets it.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, ClassVar, Literal, Protocol, runtime_checkable

from pydantic import BaseModel

from troupe.errors import InvalidArgumentError
from troupe.sandbox.sandbox import Sandbox
from troupe.tasks.content import Content, ImagePart, TextPart, described, images_of, text_of
from troupe.tasks.tool_calls import Tool, ToolCall, listed, with_calls, written_result

Split = Literal["train", "validation", "test"]
SPLITS: tuple[Split, ...] = ("train", "validation", "test")
Role = Literal["system", "user", "assistant", "tool"]
ROLES: tuple[Role, ...] = ("system", "user", "assistant", "tool")
"""Roles of a chat message."""


@dataclass(frozen=True, slots=True)
class Message:
    """One chat message, rendered by the rollout service with the model's own chat template.

    ``tool_calls`` are those of an assistant's message, beside its text; messages of the role "tool"
    that follow it are their results, in the same order.

    Example: ``Message("user", "grid: ...")``, ``Message("user", (image, TextPart("Your move?")))``.
    """

    role: Role
    content: Content
    tool_calls: tuple[ToolCall, ...] = ()

    @property
    def text(self) -> str:
        """Its text; an image leaves nothing."""
        return text_of(self.content)

    @property
    def images(self) -> tuple[ImagePart, ...]:
        """Its images, in order."""
        return images_of(self.content)

    @property
    def described(self) -> str:
        """Its text with the name of each image in its place, and its calls, for people."""
        return with_calls(described(self.content), self.tool_calls)


Observation = tuple[Message, ...]
"""What one agent sees before it acts: the messages of one prompt, in order."""


class BoundedObservation(tuple[Message, ...]):
    """An observation that says more of its answer than its messages do; equal to its messages.

    ``max_new_tokens`` bounds the answer; it only lowers the bound of the job's sampling. ``tools``
    are the functions that the answer may call.
    """

    max_new_tokens: int | None
    tools: tuple[Tool, ...]

    def __new__(
        cls,
        messages: Iterable[Message] = (),
        max_new_tokens: int | None = None,
        tools: Sequence[Tool] = (),
    ) -> "BoundedObservation":
        """``messages``, answered by at most ``max_new_tokens`` tokens, which is 1 or more."""
        if max_new_tokens is not None and max_new_tokens < 1:
            raise InvalidArgumentError(
                f"an observation bounds its answer by {max_new_tokens} tokens; set "
                "max_new_tokens to 1 or more, or leave it out"
            )
        observation = super().__new__(cls, messages)
        observation.max_new_tokens = max_new_tokens
        observation.tools = tuple(tools)
        return observation


def bound_of(observation: Observation) -> int | None:
    """The most tokens that an answer to ``observation`` may have; None where only the job says."""
    return observation.max_new_tokens if isinstance(observation, BoundedObservation) else None


def tools_of(observation: Observation) -> tuple[Tool, ...]:
    """The functions that an answer to ``observation`` may call."""
    return observation.tools if isinstance(observation, BoundedObservation) else ()


def in_hermes_form(observation: Observation) -> Observation:
    """``observation`` with its tools, calls and results as text, for what knows no tools.

    One without tools and calls is returned as it is. Texts of the user side by side are one
    message, as are results: some chat templates refuse two.
    """
    tools = tools_of(observation)
    if not tools and not any(message.tool_calls for message in observation):
        return observation
    has_system = bool(observation) and observation[0].role == "system"
    head = _rewritten(
        observation[0].content if has_system else "",
        lambda text: "\n\n".join(part for part in (text, listed(tools)) if part),
    )
    system = (Message("system", head),) if head else ()
    rest = observation[1:] if has_system else observation
    messages = (*system, *_joined(map(_as_text, rest)))
    return BoundedObservation(messages, bound_of(observation))


def _joined(messages: Iterable[Message]) -> Iterable[Message]:
    for is_text, group in groupby(messages, lambda m: m.role == "user" and not m.images):
        if is_text:
            yield Message("user", "\n".join(message.text for message in group))
        else:
            yield from group


def _as_text(message: Message) -> Message:
    if message.role == "tool":
        return Message("user", _rewritten(message.content, written_result))
    if message.tool_calls:
        calls = message.tool_calls
        return Message(
            message.role, _rewritten(message.content, lambda text: with_calls(text, calls))
        )
    return message


def _rewritten(content: Content, write: Callable[[str], str]) -> Content:
    """What ``write`` makes of the text; of parts with images, what it puts around them."""
    if isinstance(content, str) or not images_of(content):
        return write(text_of(content))
    before, _, after = write("\0").partition("\0")
    parts = (TextPart(before), *content, TextPart(after))
    return tuple(part for part in parts if part != TextPart(""))


HiddenTexts = Sequence[str] | Mapping[str, Sequence[str]]
"""What no prompt of a task may show; a mapping says it for each agent."""


def observed_images(observation: Observation) -> tuple[ImagePart, ...]:
    """The images of an observation, in order."""
    return tuple(image for message in observation for image in message.images)


@dataclass(frozen=True, slots=True)
class Task:
    """One frozen problem instance.

    ``index`` counts from 0 inside ``split``; ``payload`` is the instance itself, in the family's
    own encoding, and equal indices give equal payloads on every machine.

    Example: ``Task("plan_path/train/7", "train", 7, b'{"size": 6, ...}')``.
    """

    id: str
    split: Split
    index: int
    payload: bytes


@dataclass(frozen=True, slots=True)
class Transition:
    """The result of one action, judged on its own copy of the state.

    ``team_reward`` is shared by the team; ``local_rewards`` are the acting agent's named terms,
    unweighted (the job spec holds the weights); a term named ``<agent>/<term>`` rewards another
    agent for this action (the loser of a game did not move last). ``done`` ends the
    episode, ``success`` says that the task is solved in ``state``. ``info`` is small and
    JSON-serialisable, for people to read.

    Example: ``Transition(b"...", 0.25, {"format": 1.0, "legal": 1.0}, False, False)``.
    """

    state: bytes
    team_reward: float
    local_rewards: Mapping[str, float]
    done: bool
    success: bool
    info: Mapping[str, Any] = field(default_factory=dict[str, Any])


class Taskset(Protocol):
    """A seeded collection of tasks with disjoint splits."""

    def size(self, split: Split) -> int | None:
        """Number of tasks in the split, or None when it is infinite."""
        ...

    def task(self, split: Split, index: int) -> Task:
        """The task at ``index``; raises InvalidArgumentError when it is out of range."""
        ...


class Environment(Protocol):
    """A pure function over opaque state bytes.

    Equal arguments give equal results on every machine, so any pod can serve any step, a state
    forks by being copied, and a retry is safe. A bad action gives a low reward, never an
    exception.
    """

    def reset(self, task: Task) -> bytes:
        """The first state of an episode."""
        ...

    def observe(self, state: bytes, agent: str) -> Observation:
        """What ``agent`` sees in ``state``; empty when another seat is to move."""
        ...

    def step(self, state: bytes, agent: str, action: str) -> Transition:
        """Judge ``action``, the raw completion text of ``agent``, in ``state``."""
        ...


class TaskFamily(Protocol):
    """One task folder: everything that Troupe needs to train a team on it.

    ``local_terms`` maps each agent to its reward terms with default weights. ``return_bound`` is
    the largest sum of ``team_reward`` that any sequence of actions can collect in one episode;
    a property test tries to beat it.

    Optional parts (see ``troupe.tasks.optional``):

    - ``usual_workflow: ClassVar[Mapping[str, Any]]``, the workflow part of a spec that
      names no other: ``{"order": ["tool", "planner"], "max_turns": 4}``. Without it all agents act
      in order, for as many turns as a job spec's default.
    - ``needed_turns: int``, turns of one agent without which no training episode comes to its end:
      ``troupe validate`` warns of fewer (a game that fewer turns make shorter needs none).
    - ``demonstrate(state, agent, rng) -> str``, a good action: for scripted play and warm starts.
    - ``random_action(state, agent, rng) -> str``, a well-formed random action: the baseline for
      every policy.
    - ``usual_warm_start: Mapping[str, Any]``, fields of the warm start of a made tiny
      model that names no others (``troupe model tiny --warm-start``).
    - ``vocabulary() -> Sequence[str]``, words that a small generated tokenizer keeps whole.
    - ``split_key(task) -> str | None``, equal for tasks that no two splits may share: twins by
      symmetry, questions of one map. None, or without it: a task is its own (``troupe data card``).
    - ``hidden_texts(task) -> HiddenTexts`` and ``is_scripted``, for the conformance kit.
    - ``runs_programs: bool``, True where a step runs programs without the sandbox, or queries: it
      may take as long as a sandboxed one. ``needs_sandbox: bool``, False where ``environment_in``
      is there and these parameters need no sandbox. ``close()`` of an environment, where it holds
      processes.
    - ``team_writes_prompts: bool``, True where prompts grow by what agents say, to no known number
      of tokens: one that fills its model's context then ends the episode unpaid
      (``prompt_too_long``); it is an error anywhere else.
    - ``request_task(text) -> Task``, a task of a text that a user of the trained team wrote: nobody
      knows its answer, so no action of it is paid as right (``troupe serve``).
    - ``attackers() -> Mapping[str, Policy]``, own attackers by name for ``troupe audit``, and
      ``audit_exceptions: ClassVar[Mapping[str, str]]``, why an attacker may be paid.
    """

    name: ClassVar[str]
    agents: ClassVar[tuple[str, ...]]
    Params: ClassVar[type[BaseModel]]
    local_terms: ClassVar[Mapping[str, Mapping[str, float]]]
    return_bound: ClassVar[float]

    def __init__(self, params: BaseModel) -> None: ...

    def taskset(self) -> Taskset:
        """Its tasks."""
        ...

    def environment(self) -> Environment:
        """Its environment."""
        ...


@runtime_checkable
class SandboxedTaskFamily(Protocol):
    """A task family whose environment runs untrusted programs.

    Its ``environment()`` raises InvalidArgumentError; ``troupe.tasks.registry.make_environment``
    calls ``environment_in`` with the sandbox of the process that judges.
    """

    name: ClassVar[str]

    def environment_in(self, sandbox: Sandbox) -> Environment:
        """The family's environment, which runs programs in ``sandbox``."""
        ...


def needs_sandbox(family: object) -> bool:
    """Whether the family's environment is made in a sandbox."""
    return isinstance(family, SandboxedTaskFamily) and bool(getattr(family, "needs_sandbox", True))


def runs_programs(family: object) -> bool:
    """Whether its steps run programs, in a sandbox or not: each may take seconds."""
    return needs_sandbox(family) or bool(getattr(family, "runs_programs", False))


def close_environment(environment: Environment) -> None:
    """Close what ``environment`` holds, if it holds anything."""
    close = getattr(environment, "close", None)
    if callable(close):
        close()
