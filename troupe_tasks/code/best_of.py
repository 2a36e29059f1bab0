"""The best of several programs: a coder writes K, a tester's tests tell right from wrong ones.

The K attempts are acts of one episode with equal prompts, and the programs are in the state, so the
execution matrix is a pure function of it (`matrix`). Neither agent sees the other's work.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from random import Random
from typing import Any, ClassVar

from pydantic import BaseModel, Field

from troupe.errors import InvalidArgumentError
from troupe.sandbox.sandbox import Sandbox
from troupe.tasks.agents import known_agent
from troupe.tasks.family import Environment, Observation, Task, Transition
from troupe_tasks.code import state as states
from troupe_tasks.code import text
from troupe_tasks.code.answers import read_program, read_tests
from troupe_tasks.code.family import Code, CodeParams
from troupe_tasks.code.grade import Graded, Grader
from troupe_tasks.code.judge import Judge
from troupe_tasks.code.matrix import Cell, Program, chosen, worth_of_tests
from troupe_tasks.code.problem import Problem, TestCase
from troupe_tasks.code.proposals import fresh_tests
from troupe_tasks.code.tasks import CodeTaskset, Problems

AGENTS = (text.CODER, text.TESTER)


class BestOfParams(CodeParams):
    """As for Code, and how many programs the coder writes."""

    programs: int = Field(default=4, ge=2, le=8, description="Attempts of the coder.")
    max_code_chars: int = Field(
        default=4_000, ge=100, le=20_000, description="A longer program is not judged."
    )


@dataclass(frozen=True, slots=True)
class Attempts:
    """One moment of an episode: the programs so far."""

    problem: states.State
    programs: tuple[Program, ...] = field(default=())
    is_done: bool = False
    is_won: bool = False


class BestOfEnvironment:
    """The pure function of this family: see ``troupe.tasks.family.Environment``."""

    def __init__(self, problems: Problems, sandbox: Sandbox, params: BestOfParams) -> None:
        self._problems = problems
        self._grader = Grader(Judge(sandbox, params.budget_s))
        self._params = params

    def reset(self, task: Task) -> bytes:
        """The first state: no program."""
        first = Attempts(states.first_state(task.payload))
        self._problems.of_state(first.problem)
        return encode(first)

    def observe(self, state: bytes, agent: str) -> Observation:
        """The problem; at each attempt the same."""
        now = decode(state)
        if not self._may_act(now, agent):
            return ()
        problem = self._problems.of_state(now.problem)
        return text.observation(problem, now.problem, agent, self._params.max_tests)

    def step(self, state: bytes, agent: str, action: str) -> Transition:
        """Judge a program, or fill the matrix of all programs and the tests in ``action``."""
        now = decode(state)
        if not self._may_act(now, agent):
            return Transition(state, 0.0, {}, now.is_done, now.is_won)
        problem = self._problems.of_state(now.problem)
        judge = self._coded if agent == text.CODER else self._tested
        return judge(problem, now, action)

    def _may_act(self, now: Attempts, agent: str) -> bool:
        known_agent(agent, AGENTS, task="Best of several programs")
        is_coding = len(now.programs) < self._params.programs
        return not now.is_done and is_coding == (agent == text.CODER)

    def _coded(self, problem: Problem, now: Attempts, action: str) -> Transition:
        answer = read_program(action, self._params.max_code_chars)
        hidden = problem.hidden_tests[: self._params.max_hidden_tests or None]
        seen = self._graded(problem, answer.code, problem.public_tests)
        judged = self._graded(problem, answer.code, hidden)
        rate = sum(judged) / len(hidden) if hidden else 0.0
        program = Program(answer.code, rate, bool(answer.code) and all(seen))
        after = replace(now, programs=(*now.programs, program))
        local = {"format": float(answer.is_well_formed), "hidden": rate}
        info = {"problem": problem.id, "attempt": len(after.programs)}
        return Transition(encode(after), 0.0, local, False, False, info)

    def _graded(self, problem: Problem, code: str, tests: Sequence[TestCase]) -> list[bool]:
        return [g.passed for g in self._grader.grade(problem, code, tests)] if code else []

    def _tested(self, problem: Problem, now: Attempts, action: str) -> Transition:
        answer = read_tests(problem, action, self._params.max_tests)
        fresh = fresh_tests(problem, answer.tests)
        tests = [TestCase(input=i, output=o) for i, o in (answer.tests[n] for n in fresh)]
        cells = self._matrix(problem, now.programs, tests)
        worth = worth_of_tests(now.programs, cells)
        pick = now.programs[chosen(cells)]
        after = replace(now, is_done=True, is_won=pick.is_right)
        local = {
            "format": float(answer.is_well_formed),
            "tells": sum(worth) / max(1, len(answer.tests)),
        }
        info = {
            "problem": problem.id,
            "worth": worth,
            "right": sum(p.is_right for p in now.programs),
            "picked_rate": pick.rate,
        }
        return Transition(encode(after), pick.rate, local, True, after.is_won, info)

    def _matrix(
        self, problem: Problem, programs: Sequence[Program], tests: Sequence[TestCase]
    ) -> list[list[Cell]]:
        """A row for each program; an empty one fails every test and is not run."""
        codes = list(dict.fromkeys(p.code for p in programs if p.code)) if tests else []
        graded = self._grader.grade_all(problem, codes, tests, judgings=2.0)
        rows = dict(zip(codes, graded, strict=True))
        failed: list[Cell] = ["failed"] * len(tests)
        return [[_cell(g) for g in rows[p.code]] if p.code in rows else failed for p in programs]


class CodeBestOf:
    """A coder writes K programs, a tester writes tests, and the tests choose one of the programs.

    Example: ``CodeBestOf(BestOfParams()).taskset().task("train", 0)``.
    """

    name: ClassVar[str] = "code_best_of"
    agents: ClassVar[tuple[str, ...]] = AGENTS
    Params: ClassVar[type[BaseModel]] = BestOfParams
    local_terms: ClassVar[Mapping[str, Mapping[str, float]]] = {
        text.CODER: {"format": 0.1, "hidden": 0.9},
        text.TESTER: {"format": 0.1, "tells": 0.9},
    }
    return_bound: ClassVar[float] = 1.0
    usual_workflow: Mapping[str, Any] = {}

    def __init__(self, params: BaseModel) -> None:
        self._params = BestOfParams.model_validate(params.model_dump())
        self._code = Code(CodeParams.model_validate(params.model_dump(exclude={"programs"})))
        self.usual_workflow = {
            "kind": "self_play",
            "order": list(AGENTS),
            "max_turns": self._params.programs,
        }
        self.needed_turns = self._params.programs

    def taskset(self) -> CodeTaskset:
        """The family's tasks: those of Code."""
        return CodeTaskset(self.name, self._code.problems)

    def environment(self) -> Environment:
        """Refused: programs are judged in a sandbox only."""
        raise InvalidArgumentError(
            f"task '{self.name}' runs programs; use environment_in(sandbox), as "
            "troupe.tasks.registry.make_environment does.",
            pointer="/task/name",
        )

    def environment_in(self, sandbox: Sandbox) -> BestOfEnvironment:
        """The family's judge, running programs in ``sandbox``."""
        return BestOfEnvironment(self._code.problems, sandbox, self._params)

    def demonstrate(self, state: bytes, agent: str, rng: Random) -> str:
        """A known wrong program at first, then the reference; the spare tests."""
        now = decode(state)
        problem = self._code.problems.of_state(now.problem)
        if agent == text.CODER and not now.programs and problem.wrong_programs:
            return text.program_answer(rng.choice(problem.wrong_programs))
        return self._code.demonstrate(states.encode_state(now.problem), agent, rng)

    def random_action(self, state: bytes, agent: str, rng: Random) -> str:
        """As for Code."""
        return self._code.random_action(states.encode_state(decode(state).problem), agent, rng)

    def hidden_texts(self, task: Task) -> list[str]:
        """What no prompt of ``task`` may show."""
        return self._code.hidden_texts(task)

    def vocabulary(self) -> Sequence[str]:
        """As for Code."""
        return self._code.vocabulary()


def encode(now: Attempts) -> bytes:
    """Opaque state bytes; ``decode`` is the inverse."""
    return json.dumps(asdict(now), separators=(",", ":")).encode()


def decode(data: bytes) -> Attempts:
    """The state that ``encode`` wrote."""
    raw = json.loads(data)
    return Attempts(
        problem=states.decode_state(json.dumps(raw["problem"]).encode()),
        programs=tuple(Program(**program) for program in raw["programs"]),
        is_done=raw["is_done"],
        is_won=raw["is_won"],
    )


def _cell(graded: Graded) -> Cell:
    if graded.passed:
        return "passed"
    return "late" if graded.ran.status in ("time", "skipped") else "failed"
