"""Optional methods of a task family: their replacements, and errors when they are missing.

Owns the error messages for missing methods. Never calls a missing method.
"""

from collections.abc import Callable, Sequence
from random import Random

from troupe.errors import InvalidArgumentError
from troupe.tasks.family import Observation, Task, TaskFamily, in_hermes_form

Policy = Callable[[bytes, str, Random], str]
"""Chooses the text of an agent in a state."""

_SIGNATURES = {
    "demonstrate": "demonstrate(state, agent, rng)",
    "random_action": "random_action(state, agent, rng)",
    "vocabulary": "vocabulary()",
    "request_task": "request_task(text)",
}
_VOCABULARY_TASKS = 64
_MAX_WORDS = 8


def optional_method(family: TaskFamily, name: str) -> Callable[..., object] | None:
    """The family's method ``name``, or None where it has none."""
    method = getattr(family, name, None)
    return method if callable(method) else None


def missing(family: TaskFamily, name: str) -> str:
    """``"task 'guess' has no demonstrate(state, agent, rng)"``."""
    return f"task '{family.name}' has no {_SIGNATURES[name]}"


def required_policy(family: TaskFamily, name: str, *, needed_by: str, instead: str) -> Policy:
    """``demonstrate`` or ``random_action`` of ``family``.

    Raises InvalidArgumentError that names what needs it, and what to do ``instead``.
    """
    policy: Policy | None = getattr(family, name, None)
    if policy is None:
        raise InvalidArgumentError(
            f"{missing(family, name)}, which {needed_by} needs; write it, or {instead}",
            pointer="/task/name",
        )
    return policy


def scripted_policy(family: TaskFamily, observe: Callable[[bytes, str], Observation]) -> Policy:
    """The family's best player: its script, else its random actions, else words of the prompt."""
    return getattr(family, "demonstrate", None) or random_policy(family, observe)


def random_policy(family: TaskFamily, observe: Callable[[bytes, str], Observation]) -> Policy:
    """The family's random actions; without them, random words of the prompt."""
    policy: Policy | None = getattr(family, "random_action", None)
    if policy is not None:
        return policy

    def words_of_prompt(state: bytes, agent: str, rng: Random) -> str:
        messages = in_hermes_form(observe(state, agent))
        words = " ".join(message.text for message in messages).split() or ["?"]
        return " ".join(rng.choices(words, k=rng.randint(1, _MAX_WORDS)))

    return words_of_prompt


def request_task(family: TaskFamily, text: str) -> Task:
    """The task of a user's ``text``; raises InvalidArgumentError where the family makes none."""
    make: Callable[[str], object] | None = getattr(family, "request_task", None)
    if make is None:
        raise InvalidArgumentError(
            f"{missing(family, 'request_task')}, so its team cannot play a request; write it, or "
            "ask the agents one by one"
        )
    task = make(text)
    if not isinstance(task, Task):
        raise InvalidArgumentError(
            f"request_task(text) of task '{family.name}' gave {type(task).__name__}; return a Task "
            "whose payload the environment's reset reads"
        )
    return task


def split_key_of(family: TaskFamily, task: Task) -> str | None:
    """What one split owns with ``task``; None where the family says nothing of it."""
    key: Callable[[Task], str | None] | None = getattr(family, "split_key", None)
    return key(task) if key is not None else None


def vocabulary_of(family: TaskFamily) -> Sequence[str]:
    """The family's words, each once; without ``vocabulary`` those of its first prompts.

    A tokenizer spells all other text byte by byte.
    """
    listed: Callable[[], Sequence[str]] | None = getattr(family, "vocabulary", None)
    if listed is not None:
        return listed()
    taskset, environment = family.taskset(), family.environment()
    size = taskset.size("train")
    words: dict[str, None] = {}
    for index in range(_VOCABULARY_TASKS if size is None else min(size, _VOCABULARY_TASKS)):
        state = environment.reset(taskset.task("train", index))
        for agent in family.agents:
            for message in in_hermes_form(environment.observe(state, agent)):
                words.update(dict.fromkeys(message.text.split()))
    return list(words)
