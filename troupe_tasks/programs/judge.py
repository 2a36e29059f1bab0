"""Judges a program's answer by another family: its tasks, its first prompt, its rewards."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from troupe.errors import InvalidArgumentError
from troupe.sandbox.sandbox import Sandbox
from troupe.tasks.family import (
    SPLITS,
    Environment,
    Message,
    Task,
    TaskFamily,
    Taskset,
    Transition,
    needs_sandbox,
)
from troupe.tasks.optional import random_policy, scripted_policy, vocabulary_of
from troupe.tasks.registry import load_family, make_environment
from troupe_tasks.programs.params import JudgeParams


class InnerFamily:
    """The family behind ``judge``: whose tasks are played, and who may answer them."""

    def __init__(self, params: JudgeParams) -> None:
        pointer = "/task/params/judge"
        self.family: TaskFamily = load_family(params.name, params.params, pointer=pointer)
        self.agent = params.agent
        if params.agent not in self.family.agents:
            raise InvalidArgumentError(
                f"task '{params.name}' has no agent '{params.agent}'; it has "
                f"{', '.join(self.family.agents)}",
                pointer=f"{pointer}/agent",
            )
        self.needs_sandbox = needs_sandbox(self.family)
        self.taskset: Taskset = self.family.taskset()

    def task(self, seed: int) -> Task:
        """The task that ``seed_of`` names by ``seed``."""
        return self.taskset.task(SPLITS[seed % len(SPLITS)], seed // len(SPLITS))

    def hidden_texts(self, task: Task) -> Sequence[str]:
        """What no prompt may show."""
        hidden: Any = getattr(self.family, "hidden_texts", None)
        return hidden(task) if hidden is not None else ()

    def vocabulary(self) -> Sequence[str]:
        """The family's words."""
        return [] if self.needs_sandbox and not self._has_words() else vocabulary_of(self.family)

    def _has_words(self) -> bool:
        return hasattr(self.family, "vocabulary")


def seed_of(task: Task) -> int:
    """A number for ``task`` among the tasks of all splits."""
    return len(SPLITS) * task.index + SPLITS.index(task.split)


class AnswerJudge:
    """Reads one text as the answer to a task."""

    def __init__(self, inner: InnerFamily, sandbox: Sandbox | None) -> None:
        self.inner = inner
        self._environment: Environment = make_environment(inner.family, sandbox)

    def question(self, seed: int) -> dict[str, str]:
        """What a program is given of a task: ``id``, ``question`` and ``system``."""
        task = self.inner.task(seed)
        seen = self._environment.observe(self._environment.reset(task), self.inner.agent)
        if not seen:
            raise InvalidArgumentError(
                f"agent '{self.inner.agent}' of task '{self.inner.family.name}' sees nothing when "
                "an episode begins, so it has no question; name the agent that is first to move",
                pointer="/task/params/judge/agent",
            )
        return {
            "id": task.id,
            "question": "\n\n".join(m.text for m in seen if m.role != "system"),
            "system": "\n\n".join(m.text for m in seen if m.role == "system"),
        }

    def judged(self, seed: int, text: str) -> Transition:
        """What the family makes of ``text`` as the first action of the task."""
        first = self._environment.reset(self.inner.task(seed))
        return self._environment.step(first, self.inner.agent, text)

    def demonstration(self, seed: int, rng: Random) -> str:
        """A good answer, or a random one where the family has no script."""
        first = self._environment.reset(self.inner.task(seed))
        policy = scripted_policy(self.inner.family, self._environment.observe)
        return policy(first, self.inner.agent, rng)

    def random_answer(self, seed: int, rng: Random) -> str:
        """A well-formed random answer."""
        first = self._environment.reset(self.inner.task(seed))
        policy = random_policy(self.inner.family, self._environment.observe)
        return policy(first, self.inner.agent, rng)


@dataclass(frozen=True, slots=True)
class ScoredCall:
    """What a ``score`` function is given: one answer of one agent, and what it answered.

    Example: ``{"verdict": float(("APPROVE" in call.text) == (call.judged(said) > 0))}``.
    """

    task: Mapping[str, str]
    agent: str
    messages: tuple[Message, ...]
    text: str
    judge: AnswerJudge
    seed: int

    def judged(self, text: str) -> float:
        """The team reward of ``text`` as the answer to the task."""
        return self.judge.judged(self.seed, text).team_reward
