"""Code as a task family: its parameters, its tasks and its demonstrations."""

import keyword
from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field

from troupe.errors import InvalidArgumentError
from troupe.sandbox.sandbox import Sandbox
from troupe.tasks.family import Environment, Split, Task
from troupe_tasks.code import state as states
from troupe_tasks.code import text
from troupe_tasks.code.environment import RETURN_BOUND, CodeEnvironment
from troupe_tasks.code.judge import JUDGING_S
from troupe_tasks.code.problem import REQUEST, Problem
from troupe_tasks.code.tasks import CodeTaskset, Problems, secrets_of

MAX_REQUEST_CHARS = 20_000
"""A longer request is refused; a state carries it."""


class CodeParams(BaseModel):
    """Which problems, and how much one answer may cost."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    data: Path | dict[Split, Path] | None = Field(
        default=None,
        description="Prepared problems (a folder, a file, or a file a split); none: built in.",
    )
    max_tests: int = Field(default=4, ge=1, le=12, description="Tests in one answer, at most.")
    max_hidden_tests: int = Field(
        default=0, ge=0, description="Hidden tests that are judged, the first ones; 0: all."
    )
    max_code_chars: int = Field(
        default=20_000, ge=100, le=200_000, description="A longer program is not judged."
    )
    budget_s: float = Field(
        default=JUDGING_S,
        gt=0.0,
        le=600.0,
        description="Wall time of one judging, which programs that are judged together share.",
    )


class Code:
    """A tester writes tests, a coder writes the program that must pass the hidden ones.

    The coder alone is a valid team too: its observation then has no tests but the public ones.

    Example: ``Code(CodeParams()).taskset().task("train", 0)``.
    """

    name: ClassVar[str] = "code"
    agents: ClassVar[tuple[str, ...]] = text.AGENTS
    Params: ClassVar[type[BaseModel]] = CodeParams
    local_terms: ClassVar[Mapping[str, Mapping[str, float]]] = {
        text.TESTER: {"format": 0.1, "valid": 0.3, "catches": 0.6},
        text.CODER: {"format": 0.1, "compiles": 0.1, "hidden": 0.8},
    }
    return_bound: ClassVar[float] = RETURN_BOUND
    usual_workflow: ClassVar[Mapping[str, Any]] = {
        "kind": "turn_based",
        "order": [text.TESTER, text.CODER],
        "max_turns": 3,
    }

    def __init__(self, params: BaseModel) -> None:
        self._params = CodeParams.model_validate(params.model_dump())
        self.problems = Problems(self._params.data)
        """Where its tasks come from."""

    def taskset(self) -> CodeTaskset:
        """The family's tasks."""
        return CodeTaskset(self.name, self.problems)

    def environment(self) -> Environment:
        """Refused: programs are judged in a sandbox only."""
        raise InvalidArgumentError(
            "task 'code' runs programs; use environment_in(sandbox), as "
            "troupe.tasks.registry.make_environment does.",
            pointer="/task/name",
        )

    def environment_in(self, sandbox: Sandbox) -> CodeEnvironment:
        """The family's judge, running programs in ``sandbox``."""
        params = self._params
        return CodeEnvironment(
            self.problems,
            sandbox,
            max_tests=params.max_tests,
            max_hidden_tests=params.max_hidden_tests,
            max_code_chars=params.max_code_chars,
            budget_s=params.budget_s,
        )

    def request_task(self, text: str) -> Task:
        """``text`` as a problem without hidden tests: done when a program passes the tester's."""
        if not 0 < len(text) <= MAX_REQUEST_CHARS:
            raise InvalidArgumentError(
                f"a request has 1 to {MAX_REQUEST_CHARS} characters, and this one {len(text)}"
            )
        return Task(REQUEST, "test", 0, states.encode_request(text))

    def demonstrate(self, state: bytes, agent: str, rng: Random) -> str:
        """The reference, or tests that catch wrong programs; spare ones, never hidden ones."""
        problem = self._problem(state)
        if agent == text.CODER:
            if not problem.references:
                return self.random_action(state, agent, rng)
            return text.program_answer(rng.choice(problem.references))
        spare = problem.spare_tests[: self._params.max_tests]
        if not spare:
            return self.random_action(state, agent, rng)
        return text.tests_answer(problem, [(test.input, test.output) for test in spare])

    def random_action(self, state: bytes, agent: str, rng: Random) -> str:
        """A program that always gives one public output, or a public input with an output drawn
        from the public ones."""
        problem = self._problem(state)
        plain = [test for test in problem.public_tests if test.script is None]
        output = rng.choice(plain).output if plain else "0"
        if agent == text.CODER:
            return text.program_answer(_constant_program(problem, output))
        test_input = (
            rng.choice(plain).input if plain else "(0,)" if problem.kind == "call" else "0\n"
        )
        return text.tests_answer(problem, [(test_input, output)])

    def hidden_texts(self, task: Task) -> list[str]:
        """What no prompt of ``task`` may show."""
        return secrets_of(self._problem(states.encode_state(states.first_state(task.payload))))

    def vocabulary(self) -> Sequence[str]:
        """Python's keywords and the names that most programs use."""
        return (*keyword.kwlist, *_USUAL_NAMES, "```python", "```", "Test", "Input:")

    def _problem(self, state: bytes) -> Problem:
        return self.problems.of_state(states.decode_state(state))


_USUAL_NAMES = ("print", "input", "int", "len", "range", "map", "split", "sorted", "sum", "list")


def _constant_program(problem: Problem, output: str) -> str:
    if problem.kind == "stdin":
        return f"print({output.strip()!r})"
    owner, _, name = problem.entry_point.rpartition(".")
    if not owner:
        return f"def {name}(*args):\n    return {output}"
    return f"class {owner}:\n    def {name}(self, *args):\n        return {output}"
