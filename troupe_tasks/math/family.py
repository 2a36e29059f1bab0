"""The math task as a task family: its parameters, its tasks and its demonstrations."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any, ClassVar, Literal, NoReturn

from pydantic import BaseModel, ConfigDict, Field

from troupe.data.prepared import SplitRows
from troupe.data.taskset import PreparedTaskset
from troupe.errors import InvalidArgumentError
from troupe.sandbox.sandbox import Limits, Sandbox
from troupe.tasks.family import Split, Task, Taskset
from troupe_tasks.math import text
from troupe_tasks.math.environment import RETURN_BOUND, MathEnvironment
from troupe_tasks.math.equivalence import Equivalence
from troupe_tasks.math.problems import LEVELS, SUBJECTS
from troupe_tasks.math.row import MAX_PROBLEM_CHARS, REQUEST, MathRow
from troupe_tasks.math.state import decode_state
from troupe_tasks.math.taskset import BuiltInProblems

Subject = Literal["arithmetic", "number_theory", "algebra", "combinatorics", "geometry"]
Level = Literal[1, 2, 3]

MIN_TELLING_CHARS = 4
"""Shorter answers turn up in problems by chance."""


class MathParams(BaseModel):
    """Which problems, and what the tool's programs may use."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    data: Path | dict[Split, Path] | None = Field(
        default=None,
        description="Folder or file of `troupe data prepare`, or a file for each split; "
        "without it, problems written by this project.",
    )
    seed: int = Field(default=0, description="Seed of the built-in problems.")
    subjects: tuple[Subject, ...] = Field(
        default=("arithmetic", "number_theory", "algebra", "combinatorics", "geometry"),
        min_length=1,
        description="Subjects of the built-in problems.",
    )
    levels: tuple[Level, ...] = Field(
        default=(1, 2, 3),
        min_length=1,
        description="Levels of the built-in problems, 1 easy to 3 hard.",
    )
    final_agent: Literal["reasoner", "tool"] = Field(
        default="reasoner", description="Whose answer is the team's; tool when it is alone."
    )
    tool_time_s: float = Field(
        default=5.0, gt=0, le=60, description="Seconds that a program may run."
    )
    tool_memory_mib: int = Field(
        default=256, ge=16, le=4096, description="Memory of a program, MiB."
    )


class Math:
    """A tool agent computes with Python, a reasoner answers; done when both say the same.

    Each of them alone is a valid team too: the reasoner as it is, the tool agent with
    ``final_agent: tool``. Alone, an agent is done when it gives the same answer twice.

    Example: ``Math(MathParams(levels=(1,))).taskset().task("train", 0)``.
    """

    name: ClassVar[str] = "math"
    agents: ClassVar[tuple[str, ...]] = text.AGENTS
    Params: ClassVar[type[BaseModel]] = MathParams
    local_terms: ClassVar[Mapping[str, Mapping[str, float]]] = {
        text.TOOL: {"builds": 0.1, "executes": 0.1, "correct": 0.8},
        text.REASONER: {"format": 0.2, "correct": 0.8},
    }
    return_bound: ClassVar[float] = RETURN_BOUND
    usual_workflow: ClassVar[Mapping[str, Any]] = {
        "kind": "turn_based",
        "order": [text.TOOL, text.REASONER],
        "max_turns": 4,
    }

    def __init__(self, params: BaseModel) -> None:
        self._params = MathParams.model_validate(params.model_dump())

    def taskset(self) -> Taskset:
        """The prepared problems, or the built-in ones."""
        if self._params.data is not None:
            return PreparedTaskset(SplitRows(self._params.data, MathRow))
        return BuiltInProblems(
            seed=self._params.seed, subjects=self._params.subjects, levels=self._params.levels
        )

    def environment(self) -> NoReturn:
        """Always raises: programs need a sandbox."""
        raise InvalidArgumentError(
            "task 'math' runs programs, so its environment needs a sandbox: use environment_in",
            pointer="/task/name",
        )

    def environment_in(self, sandbox: Sandbox) -> MathEnvironment:
        """The family's judge, running programs in ``sandbox``."""
        limits = Limits(
            wall_time_s=2 * self._params.tool_time_s,
            cpu_time_s=self._params.tool_time_s,
            memory_bytes=self._params.tool_memory_mib * 1024 * 1024,
        )
        return MathEnvironment(
            sandbox, Equivalence(), limits=limits, final_agent=self._params.final_agent
        )

    def request_task(self, text: str) -> Task:
        """``text`` as a problem without a reference: the team is done when both agree."""
        if not 0 < len(text) <= MAX_PROBLEM_CHARS:
            raise InvalidArgumentError(
                f"a problem has 1 to {MAX_PROBLEM_CHARS} characters, and this one {len(text)}"
            )
        row = MathRow(id=REQUEST, problem=text, answer="", source=REQUEST)
        return Task(REQUEST, "test", 0, row.model_dump_json().encode())

    def demonstrate(self, state: bytes, agent: str, rng: Random) -> str:
        """The problem's own program, or one that prints the answer; the answer, boxed."""
        row = decode_state(state).row
        if agent == text.TOOL:
            return f"```python\n{row.program or f'print({row.answer!r})'}\n```"
        return f"The answer is \\boxed{{{row.answer}}}."

    def random_action(self, state: bytes, agent: str, rng: Random) -> str:
        """A small integer, printed or boxed."""
        guess = rng.randrange(1000)
        if agent == text.TOOL:
            return f"```python\nprint({guess})\n```"
        return f"The answer is \\boxed{{{guess}}}."

    def hidden_texts(self, task: Task) -> list[str]:
        """What no prompt may show: the solution program, and an answer too long to be chance."""
        row = MathRow.model_validate_json(task.payload)
        is_telling = len(row.answer) >= MIN_TELLING_CHARS and row.answer not in row.problem
        return [text for text in (row.program, row.answer if is_telling else "") if text]

    def vocabulary(self) -> Sequence[str]:
        """Digits, signs and the words that programs and answers are made of."""
        return [*"0123456789+-*/=(){}$^", "print", "```python", "```", "\\boxed", "\\frac"]


__all__ = ["LEVELS", "SUBJECTS", "Math", "MathParams"]
