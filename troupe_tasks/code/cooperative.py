"""Cooperative code: one agent writes a helper function, the other the main one that uses it.

The setting of CoMLRL's code environments; its published reward is the team reward, paid as
progress: what a new best score adds.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from random import Random
from typing import Any, ClassVar

from pydantic import BaseModel

from troupe.errors import InvalidArgumentError
from troupe.sandbox.sandbox import Sandbox
from troupe.tasks import quoting
from troupe.tasks.agents import known_agent
from troupe.tasks.family import Environment, Message, Observation, Split, Task, Transition
from troupe_tasks.code import staged
from troupe_tasks.code.answers import read_program
from troupe_tasks.code.family import Code, CodeParams
from troupe_tasks.code.grade import Grader
from troupe_tasks.code.judge import Judge
from troupe_tasks.code.problem import Problem
from troupe_tasks.code.tasks import CodeTaskset, Problems, secrets_of
from troupe_tasks.code.text import program_answer, shown_test

HELPER, MAIN = "helper", "main"
AGENTS = (HELPER, MAIN)


@dataclass(frozen=True, slots=True)
class Draft:
    """One moment of an episode: both parts, and the best score so far."""

    split: Split
    index: int
    digest: str
    helper: str = ""
    main: str = ""
    best: float = 0.0
    feedback: str = ""
    is_solved: bool = False


class CooperativeEnvironment:
    """The pure function of cooperative code: see ``troupe.tasks.family.Environment``."""

    def __init__(self, problems: Problems, sandbox: Sandbox, params: CodeParams) -> None:
        self._problems = problems
        self._grader = Grader(Judge(sandbox, params.budget_s))
        self._params = params

    def reset(self, task: Task) -> bytes:
        """The first state: nothing written."""
        raw = json.loads(task.payload)
        first = Draft(raw["split"], raw["index"], raw["digest"])
        self._problem(first)
        return _encode(first)

    def observe(self, state: bytes, agent: str) -> Observation:
        """The problem, the other agent's part, and what the last tests said."""
        draft = _decode(state)
        return _observation(self._problem(draft), draft, _known(agent))

    def step(self, state: bytes, agent: str, action: str) -> Transition:
        """Put the agent's new part in, and score both together."""
        before = _decode(state)
        problem = self._problem(before)
        answer = read_program(action, self._params.max_code_chars)
        part = {HELPER: "helper", MAIN: "main"}[_known(agent)]
        draft = replace(before, **{part: answer.code})
        structure = staged.structure(draft.helper, draft.main, problem.entry_point)
        passed, feedback = self._tested(problem, draft) if structure.is_runnable else (0.0, "")
        score = staged.score(structure, passed)
        after = replace(
            draft,
            best=max(before.best, score),
            feedback=feedback or _missing(structure, problem),
            is_solved=before.is_solved or passed >= 1.0,
        )
        return Transition(
            _encode(after),
            after.best - before.best,
            {"format": float(answer.is_well_formed)},
            done=after.best >= staged.SOLVED_SCORE and after.is_solved,
            success=after.is_solved,
            info={"problem": problem.id, "score": score, "pass_rate": passed, **asdict(structure)},
        )

    def _problem(self, draft: Draft) -> Problem:
        return self._problems.named(draft.split, draft.index, draft.digest)

    def _tested(self, problem: Problem, draft: Draft) -> tuple[float, str]:
        """Share of hidden tests passed, and words on the public ones."""
        hidden = problem.hidden_tests[: self._params.max_hidden_tests or None]
        code = staged.joined(draft.helper, draft.main)
        # First and apart, with a budget of their own: what hidden tests did is in no prompt.
        seen = self._grader.grade(problem, code, problem.public_tests)
        judged = self._grader.grade(problem, code, hidden)
        rate = sum(grade.passed for grade in judged) / len(hidden)
        failed = [
            f"{shown_test(problem, test)}\nfailed. {quoting.in_one_line(grade.ran.error)}".strip()
            for test, grade in zip(problem.public_tests, seen, strict=True)
            if not grade.passed
        ]
        if failed:
            return rate, "\n".join(failed)
        return rate, "All tests that you can see passed." if problem.public_tests else "It ran."


class CodeCooperative:
    """A helper and a main function, by two agents, for call problems.

    Example: ``CodeCooperative(CodeParams()).taskset().task("train", 0)``.
    """

    name: ClassVar[str] = "code_cooperative"
    agents: ClassVar[tuple[str, ...]] = AGENTS
    Params: ClassVar[type[BaseModel]] = CodeParams
    local_terms: ClassVar[Mapping[str, Mapping[str, float]]] = {
        HELPER: {"format": 0.0},
        MAIN: {"format": 0.0},
    }
    return_bound: ClassVar[float] = staged.MAX_SCORE
    usual_workflow: ClassVar[Mapping[str, Any]] = {
        "kind": "turn_based",
        "order": [HELPER, MAIN],
        "max_turns": 2,
    }

    def __init__(self, params: BaseModel) -> None:
        self._params = CodeParams.model_validate(params.model_dump())
        self._problems = Problems(self._params.data, kind="call")

    def taskset(self) -> CodeTaskset:
        """The family's tasks: problems that ask for a function."""
        return CodeTaskset(self.name, self._problems)

    def environment(self) -> Environment:
        """Refused: programs are judged in a sandbox only."""
        raise InvalidArgumentError(
            "task 'code_cooperative' runs programs; use environment_in(sandbox), as "
            "troupe.tasks.registry.make_environment does.",
            pointer="/task/name",
        )

    def environment_in(self, sandbox: Sandbox) -> CooperativeEnvironment:
        """The family's judge, running programs in ``sandbox``."""
        return CooperativeEnvironment(self._problems, sandbox, self._params)

    def demonstrate(self, state: bytes, agent: str, rng: Random) -> str:
        """A helper that hands its value on, and the reference that uses it."""
        problem = self._problem(state)
        if not problem.references:
            return self.random_action(state, agent, rng)
        if agent == HELPER:
            return program_answer(f"def {staged.HELPER_NAME}(value):\n    return value")
        return program_answer(staged.with_helper(problem.references[0], problem.entry_point))

    def random_action(self, state: bytes, agent: str, rng: Random) -> str:
        """A function of the right name that returns a small number."""
        name = staged.HELPER_NAME if agent == HELPER else self._problem(state).entry_point
        return program_answer(f"def {name}(*args):\n    return {rng.randint(0, 9)}")

    def hidden_texts(self, task: Task) -> list[str]:
        """What no prompt of ``task`` may show."""
        raw = json.loads(task.payload)
        return secrets_of(self._problems.get(raw["split"], raw["index"])[0])

    def vocabulary(self) -> Sequence[str]:
        """As the Code family."""
        return Code(self._params).vocabulary()

    def _problem(self, state: bytes) -> Problem:
        draft = _decode(state)
        return self._problems.named(draft.split, draft.index, draft.digest)


def _observation(problem: Problem, draft: Draft, agent: str) -> Observation:
    rules = _RULES[agent].format(aux=staged.HELPER_NAME, main=problem.entry_point)
    parts = [problem.statement.strip()]
    parts += [shown_test(problem, test) for test in problem.public_tests]
    if draft.helper:
        parts.append(f"The helper's function:\n{quoting.fenced(draft.helper, 'python')}")
    if draft.main:
        parts.append(f"The main function:\n{quoting.fenced(draft.main, 'python')}")
        parts.append(f"Last result: {draft.feedback}")
    return Message("system", rules), Message("user", "\n\n".join(parts))


_FORM = " Answer with one fenced block:\n```python\n# your function, with its imports\n```"
_RULES = {
    HELPER: "Two agents solve a problem together. You write the function {aux}, which helps the "
    "function {main} that the other agent writes: do a real part of the work, and return it."
    + _FORM,
    MAIN: "Two agents solve a problem together. The other agent writes the function {aux}. You "
    "write the function {main}: call {aux}, use what it returns, and do the rest yourself." + _FORM,
}


def _missing(structure: staged.Structure, problem: Problem) -> str:
    if not structure.has_main:
        return f"there is no function {problem.entry_point} that returns a value yet."
    return "the two parts together are not valid Python."


def _known(agent: str) -> str:
    return known_agent(agent, AGENTS, task="Cooperative code")


def _encode(draft: Draft) -> bytes:
    return json.dumps(asdict(draft), separators=(",", ":")).encode()


def _decode(data: bytes) -> Draft:
    return Draft(**json.loads(data))
