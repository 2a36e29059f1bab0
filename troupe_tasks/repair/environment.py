"""Judges one turn of the reader or the fixer on its own copy of the repository.

The team is paid for hidden tests that failed before and pass now, while none that passed fails, and
most of it only when all do. Each hidden test is a run of its own in the sandbox; the right results
stay in this process.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace

from troupe.sandbox.sandbox import Sandbox
from troupe.tasks.agents import known_agent
from troupe.tasks.family import Observation, Task, Transition
from troupe_tasks.code.grade import Graded, Grader
from troupe_tasks.code.judge import Judge
from troupe_tasks.repair import text
from troupe_tasks.repair.edits import applied, read_edits
from troupe_tasks.repair.instance import Instance, instance_of
from troupe_tasks.repair.reading import WAIT, Reading, covers, read
from troupe_tasks.repair.repository import program
from troupe_tasks.repair.state import MAX_FOUND, MAX_HANDED, State, decode_state, encode_state
from troupe_tasks.repair.text import FIXER, READER

RETURN_BOUND = 1.0
PARTIAL = 0.3
"""What all repaired hidden tests are worth while another test still fails."""


class RepairEnvironment:
    """The pure function of Repair: see ``troupe.tasks.family.Environment``."""

    def __init__(self, agents: tuple[str, ...], sandbox: Sandbox, budget_s: float) -> None:
        self._agents = agents
        self._grader = Grader(Judge(sandbox, budget_s))

    @property
    def _is_solo(self) -> bool:
        return len(self._agents) == 1

    def reset(self, task: Task) -> bytes:
        """The repository with its fault, nothing read."""
        return encode_state(State(instance_of(json.loads(task.payload))))

    def observe(self, state: bytes, agent: str) -> Observation:
        """What ``agent`` knows; empty when the repository is repaired."""
        decoded = decode_state(state)
        if not self._may_act(decoded, agent):
            return ()
        return text.observation(decoded, agent, is_solo=self._is_solo)

    def step(self, state: bytes, agent: str, action: str) -> Transition:
        """Read, or edit and test; one agent alone does both in one answer."""
        before = decode_state(state)
        if not self._may_act(before, agent):
            return _transition(before, before, {})
        if self._is_solo:
            return self._alone(before, action)
        if agent == READER:
            after, terms = self._read(before, read(before.files, action))
            return _transition(before, after, terms)
        after, terms = self._edited(before, action)
        return _transition(before, after, terms)

    def _may_act(self, state: State, agent: str) -> bool:
        known_agent(agent, self._agents, task="Repair")
        return not state.is_solved

    def _alone(self, before: State, action: str) -> Transition:
        """Edits where there are any; else reading."""
        edits, _ = read_edits(action)
        if edits:
            after, terms = self._edited(before, action)
        else:
            after, terms = self._read(before, read(before.files, action))
            del terms["located"]
        return _transition(before, after, terms)

    def _read(self, before: State, reading: Reading) -> tuple[State, dict[str, float]]:
        is_located = before.is_located or _is_fault_shown(before, reading)
        after = replace(
            before,
            found=(*before.found, *reading.found)[-MAX_FOUND:],
            handed=(*before.handed, *reading.handed)[-MAX_HANDED:],
            is_located=is_located,
        )
        return after, {
            "format": 0.0 if reading.is_well_formed else -1.0,
            "valid": 0.0 if reading.is_valid else -1.0,
            "located": float(is_located and not before.is_located),
        }

    def _edited(self, before: State, action: str) -> tuple[State, dict[str, float]]:
        if action.strip().lower() == WAIT:
            return replace(before, refusals=()), {"format": 0.0, "valid": 0.0}
        edits, is_well_formed = read_edits(action)
        edited = applied(before.files, edits)
        terms = {
            "format": 0.0 if is_well_formed else -1.0,
            "valid": -1.0 if edited.refusals else 0.0,
        }
        after = replace(before, edits={**before.edits, **edited.changed}, refusals=edited.refusals)
        if after.edits == before.edits:
            return after, terms
        return self._tested(after), terms

    def _tested(self, state: State) -> State:
        instance, code = state.instance, program(state.files)
        problem = instance.problem()
        # First and apart, with a budget of their own: what hidden tests did is in no prompt.
        seen = self._grader.grade(problem, code, problem.public_tests)
        if any(graded.ran.status == "time" for graded in seen):
            return replace(state, outcomes=tuple(_outcomes(instance, seen)))
        judged = self._grader.grade(problem, code, problem.hidden_tests)
        passed = [graded.passed for graded in judged]
        score = _score(instance, passed)
        is_solved = all(passed) and all(graded.passed for graded in seen)
        total = RETURN_BOUND if is_solved else PARTIAL * score
        return replace(
            state,
            best=max(state.best, total),
            is_solved=is_solved,
            outcomes=tuple(_outcomes(instance, seen)),
        )


def _score(instance: Instance, passed: Sequence[bool]) -> float:
    """Share of the hidden tests that failed before and pass now; 0 when a passing one broke."""
    num_failing = len(instance.failing)
    if not all(passed[num_failing:]):
        return 0.0
    return sum(passed[:num_failing]) / num_failing


def _is_fault_shown(state: State, reading: Reading) -> bool:
    path, start, _, _ = state.instance.fault
    if path in state.edits:
        return False
    line = state.instance.files[path][:start].count("\n") + 1
    return covers(reading.shown, path, line)


_FAILURES = {
    "syntax": "the code is not valid Python",
    "error": "raises an error",
    "time": "runs out of time",
    "skipped": "was not run, as other tests took too long",
}


def _outcomes(instance: Instance, seen: Sequence[Graded]) -> list[str]:
    """One line a shown test: what it should give, and what it gave."""
    lines: list[str] = []
    for (call, _, wanted), graded in zip(instance.shown, seen, strict=True):
        ran = graded.ran
        if graded.passed:
            lines.append(f"passed: {call}")
        elif ran.status == "ok" and ran.has_value:
            lines.append(f"failed: {call} gives {repr(ran.value)[:200]}, should give {wanted}")
        else:
            why = _FAILURES.get(ran.status, "gives no plain value")
            lines.append(f"failed: {call} {why}, should give {wanted}")
    return lines


def _transition(before: State, after: State, terms: Mapping[str, float]) -> Transition:
    info = {
        "package": after.instance.package,
        "fault": after.instance.kind,
        "best": after.best,
        "edited": sorted(after.edits),
        "outcomes": list(after.outcomes),
    }
    return Transition(
        encode_state(after),
        after.best - before.best,
        terms,
        done=after.is_solved,
        success=after.is_solved,
        info=info,
    )


__all__ = ["FIXER", "READER", "RETURN_BOUND", "RepairEnvironment"]
