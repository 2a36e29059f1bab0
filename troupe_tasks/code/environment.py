"""Judges one answer of the tester or the coder on its own copy of the state.

The team is paid for a new best hidden pass rate, on the coder's actions only, so repeating a
program or trading one passed test for another collects nothing. A term is the difference between
what an agent's answer is worth and what its last one was: what an episode collects is what its last
answers are worth, and no number of turns can farm it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from troupe.sandbox.sandbox import Sandbox
from troupe.tasks.agents import known_agent
from troupe.tasks.family import Observation, Task, Transition
from troupe_tasks.code import state as states
from troupe_tasks.code import text
from troupe_tasks.code.answers import read_program, read_tests
from troupe_tasks.code.grade import Graded, Grader
from troupe_tasks.code.judge import Judge
from troupe_tasks.code.problem import Problem, TestCase
from troupe_tasks.code.proposals import judge_tests
from troupe_tasks.code.state import Outcome, State
from troupe_tasks.code.tasks import Problems

RETURN_BOUND = 1.0
"""Progress in the hidden pass rate sums to at most all of it."""


class CodeEnvironment:
    """The pure function of Code: see ``troupe.tasks.family.Environment``."""

    def __init__(
        self,
        problems: Problems,
        sandbox: Sandbox,
        *,
        max_tests: int,
        max_hidden_tests: int,
        max_code_chars: int,
        budget_s: float,
    ) -> None:
        self._problems = problems
        self._grader = Grader(Judge(sandbox, budget_s))
        self._max_tests = max_tests
        self._max_hidden_tests = max_hidden_tests
        self._max_code_chars = max_code_chars

    def reset(self, task: Task) -> bytes:
        """The first state: no tests, no program."""
        first = states.first_state(task.payload)
        self._problem(first)
        return states.encode_state(first)

    def observe(self, state: bytes, agent: str) -> Observation:
        """What ``agent`` sees of the problem and of the team's work."""
        decoded = states.decode_state(state)
        problem = self._problem(decoded)
        return text.observation(problem, decoded, _known(agent), self._max_tests)

    def step(self, state: bytes, agent: str, action: str) -> Transition:
        """Judge the tests or the program in ``action``."""
        before = states.decode_state(state)
        problem = self._problem(before)
        if _known(agent) == text.TESTER:
            return self._tested(problem, before, action)
        return self._coded(problem, before, action)

    def _problem(self, state: State) -> Problem:
        return self._problems.of_state(state)

    def _tested(self, problem: Problem, before: State, action: str) -> Transition:
        answer = read_tests(problem, action, self._max_tests)
        judged = judge_tests(self._grader, problem, answer.tests)
        after = replace(before, proposals=judged.proposals, proposal_outcomes=())
        marks = {
            "format": float(answer.is_well_formed),
            "valid": judged.valid_share,
            "catches": judged.valid_share * judged.caught_share,
        }
        info = {
            "problem": problem.id,
            "tests": [p.verdict for p in judged.proposals],
            "caught_share": judged.caught_share,
        }
        return _transition(after, 0.0, text.TESTER, marks, info)

    def _coded(self, problem: Problem, before: State, action: str) -> Transition:
        answer = read_program(action, self._max_code_chars)
        hidden = problem.hidden_tests[: self._max_hidden_tests or None]
        proposed = [TestCase(input=p.input, output=p.output) for p in before.proposals]
        shown = [*problem.public_tests, *proposed]
        # First and apart, with a budget of their own: what hidden tests did is in no prompt.
        seen = self._grader.grade(problem, answer.code, shown) if answer.code else []
        judged = self._grader.grade(problem, answer.code, hidden) if answer.code else []
        outcomes = [_outcome(problem, t, g) for t, g in zip(shown, seen, strict=False)]
        rate = sum(grade.passed for grade in judged) / len(hidden) if hidden else 0.0
        after = replace(
            before,
            best=max(before.best, rate),
            code=answer.code,
            public_outcomes=tuple(outcomes[: len(problem.public_tests)]),
            proposal_outcomes=tuple(outcomes[len(problem.public_tests) :]),
        )
        compiles = bool(judged or seen) and all(g.ran.status != "syntax" for g in (*seen, *judged))
        marks = {
            "format": float(answer.is_well_formed),
            "compiles": float(compiles),
            "hidden": rate,
        }
        info = {
            "problem": problem.id,
            "hidden_passed": sum(grade.passed for grade in judged),
            "hidden_tests": len(hidden),
            "statuses": _counts(judged),
        }
        return _transition(after, after.best - before.best, text.CODER, marks, info)


def _outcome(problem: Problem, test: TestCase, graded: Graded) -> Outcome:
    shown, ran = test.script or test.input, graded.ran
    if ran.status == "ok":
        did = repr(ran.value) if problem.kind == "call" and ran.has_value else ran.output
    else:
        did = f"{_FAILURES.get(ran.status, ran.status)}. {ran.error}".strip()
    return Outcome(text.cut(shown), text.cut(test.output), graded.passed, text.cut(did))


_FAILURES = {
    "exit": "ended with an error status",
    "error": "raised an exception",
    "signal": "was ended by a signal",
    "time": "ran out of time",
    "output": "wrote too much",
    "syntax": "is not valid Python",
    "value": "returned something that is no plain value",
    "skipped": "was not run, as other tests took too long",
}


def _counts(graded: Sequence[Graded]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for grade in graded:
        counts[grade.ran.status] = counts.get(grade.ran.status, 0) + 1
    return counts


def _transition(
    after: State,
    team_reward: float,
    agent: str,
    marks: Mapping[str, float],
    info: Mapping[str, object],
) -> Transition:
    after, rewards = after.marked(agent, marks)
    return Transition(
        states.encode_state(after),
        team_reward,
        rewards,
        done=after.is_solved or after.is_agreed,
        success=after.is_solved,
        info=info,
    )


def _known(agent: str) -> str:
    return known_agent(agent, text.AGENTS, task="Code")
