"""Data sets of reasoning-gym as tasks of one agent: ``reasoning_gym:countdown``.

A question is drawn by its index and belongs to the split that a hash of its text names, so no
question is in two splits. The library's own scorer pays the answer.
"""

import re
import weakref
from functools import cache
from random import Random
from typing import Any, ClassVar

from pydantic import BaseModel, Field

from troupe.errors import InvalidArgumentError
from troupe.tasks.content import writable
from troupe.tasks.family import Message, Observation, Split, Transition
from troupe.tasks.simple import SimpleTask, TaskParams, pack_state, state_value
from troupe.tasks.splits import DrawnTaskset, split_of_key
from troupe_tasks.importers.process import GuestProcess, SpentError
from troupe_tasks.programs.settings import interpreter_of

MAX_ANSWER = 20_000
"""Characters at the end of a completion that the scorer reads."""

TAGS = ("<answer>", "</answer>")
NUM_QUESTIONS = 64
"""Questions that the vocabulary is collected from."""

START_S = 120.0
_NAME = re.compile(r"[A-Za-z0-9_]+")


class ReasoningGymParams(TaskParams):
    """Which questions, and how they are asked."""

    config: dict[str, Any] = Field(
        default_factory=dict[str, Any],
        description="The data set's own configuration, such as {min_terms: 2, max_terms: 3}.",
    )
    num_items: int = Field(
        default=2000,
        ge=1,
        le=10_000_000,
        description="Questions that tasks are drawn from, all splits together; some data sets "
        "make them all at the start.",
    )
    prompt: str | None = Field(
        default=None,
        description="System message; without it the library's, which asks for <answer> tags.",
    )
    python: str | None = Field(
        default=None,
        description="Interpreter that reasoning-gym is installed for; without it Troupe's own. "
        "TROUPE_PROGRAM_INTERPRETERS says which may be named.",
    )
    cpu_s: float = Field(
        default=5.0, gt=0, le=600, description="Processor time of one judgement; more pays 0."
    )


class ReasoningGymTask(SimpleTask):
    """One question, one answer; the team is paid the library's score, from 0 to 1."""

    name = "reasoning_gym"
    agents = ("solver",)
    Params = ReasoningGymParams
    terms = {"format": 0.1}  # noqa: RUF012 (as SimpleTask declares it)
    return_bound = 1.0
    runs_programs = True
    usual_workflow: ClassVar[dict[str, Any]] = {"order": ["solver"], "max_turns": 1}
    dataset: ClassVar[str] = ""

    def __init__(self, params: BaseModel | None = None) -> None:
        super().__init__(params)
        self._guest = GuestProcess(
            interpreter_of(self.params.python),
            "procedural",
            {
                "dataset": self.dataset,
                "config": self.params.config,
                "size": self.params.num_items,
                "seed": self.params.seed,
            },
            start_s=START_S,
        )
        weakref.finalize(self, self._guest.close)
        about = self._ask("describe")
        self._num_items = int(about["num_items"])
        self._prompt = about["prompt"] if self.params.prompt is None else self.params.prompt
        self.is_scripted = bool(about["has_answers"])

    def taskset(self) -> DrawnTaskset:
        """Questions without end; a hash of its text says which split owns one."""
        hint = "the data set has too few different questions: change its config"
        return DrawnTaskset(self.name, self.params.seed, self._drawn, hint=hint, max_draws=1000)

    def observe(self, state: Any, agent: str) -> Observation:
        """The question."""
        user = Message("user", state["question"])
        return (Message("system", self._prompt), user) if self._prompt else (user,)

    def step(self, state: Any, agent: str, action: str) -> Transition:
        """The end: the scorer reads what stands in the last <answer> tags."""
        try:
            text = writable(action[-MAX_ANSWER:])
            done = self._ask("score", index=state["index"], text=text)
        except SpentError:
            done = {"score": 0.0, "is_read": True}
        score = min(max(float(done["score"]), 0.0), 1.0)
        return self.transition(
            state, score, done=True, success=score >= 1.0, format=float(done["is_read"])
        )

    def demonstrate(self, state: bytes, agent: str, rng: Random) -> str:
        """The library's answer; a random one where it has none."""
        answer = self._ask("item", index=state_value(state)["index"])["answer"]
        return self.random_action(state, agent, rng) if answer is None else _tagged(answer)

    def random_action(self, state: bytes, agent: str, rng: Random) -> str:
        """The answer to another question."""
        other = self._ask("item", index=rng.randrange(self._num_items))
        return _tagged(other["answer"] or other["question"].split()[-1])

    def vocabulary(self) -> list[str]:
        """The tags of an answer, and words of the prompt and of a few questions."""
        words = [*TAGS, *self._prompt.split()]
        for index in range(min(NUM_QUESTIONS, self._num_items)):
            item = self._ask("item", index=index)
            words += [*item["question"].split(), *(item["answer"] or "").split()]
        return [*dict.fromkeys(words)]

    def _drawn(self, rng: Random, split: Split) -> bytes | None:
        index = rng.randrange(self._num_items)
        question = self._ask("item", index=index)["question"]
        if split_of_key(question) != split:
            return None
        return pack_state({"index": index, "question": question})

    def _ask(self, op: str, **arguments: Any) -> Any:
        cpu_s = self.params.cpu_s
        return self._guest.ask(op, cpu_s=cpu_s, timeout_s=6 * cpu_s + START_S, **arguments)


@cache
def imported(dataset: str) -> type[ReasoningGymTask]:
    """The family of one data set, by its name in reasoning-gym.

    Raises InvalidArgumentError for what is no name; that there is no such data set is told when
    the family is made.
    """
    if not _NAME.fullmatch(dataset):
        raise InvalidArgumentError(
            f"'{dataset}' is no name of a data set; write reasoning_gym:countdown",
            pointer="/task/name",
        )
    about = {"name": f"reasoning_gym:{dataset}", "dataset": dataset, "__doc__": _DOC + dataset}
    return type("ReasoningGymTask", (ReasoningGymTask,), about)


_DOC = "One question, one answer; the team is paid reasoning-gym's score. Data set: "


def _tagged(answer: str) -> str:
    return answer.join(TAGS)
