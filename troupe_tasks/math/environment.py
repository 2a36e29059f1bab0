r"""Judges one action of the math task on its own copy of the state.

Every reward is a difference: what the agent's attempt is worth now, less what its last one was
worth. So candidates for one turn are ranked as by the worth itself, and what an episode collects
is what its last attempts are worth: no number of turns can farm it.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from troupe.sandbox.sandbox import Execution, Limits, Program, Sandbox
from troupe.tasks.agents import known_agent
from troupe.tasks.family import Observation, Task, Transition
from troupe_tasks.math import text
from troupe_tasks.math.boxed import read_boxed, read_printed
from troupe_tasks.math.equivalence import Equivalence
from troupe_tasks.math.row import MathRow
from troupe_tasks.math.state import MAX_LOG, Attempt, State, decode_state, encode_state

RETURN_BOUND = 1.0
"""The final answer is right: the team is paid for that once."""

MAX_KEPT_CHARS = 1_600
_NOT_BUILT = ("SyntaxError", "IndentationError", "TabError")


class MathEnvironment:
    """The pure function of the math task: see ``troupe.tasks.family.Environment``."""

    def __init__(
        self, sandbox: Sandbox, equivalence: Equivalence, *, limits: Limits, final_agent: str
    ) -> None:
        self._sandbox = sandbox
        self._equivalence = equivalence
        self._limits = limits
        self._final_agent = final_agent

    def reset(self, task: Task) -> bytes:
        """The first state: nothing tried."""
        return encode_state(State(MathRow.model_validate_json(task.payload)))

    def observe(self, state: bytes, agent: str) -> Observation:
        """What ``agent`` sees; never the reference."""
        return text.observation(decode_state(state), _known(agent))

    def step(self, state: bytes, agent: str, action: str) -> Transition:
        """Run the tool's program, or read the reasoner's answer; raises only for machines."""
        before = decode_state(state)
        if before.is_done:
            return self._over(state, before, _known(agent))
        if _known(agent) == text.TOOL:
            attempt, info = self._program(before.row, action)
        else:
            attempt, info = self._solution(before.row, action)
        last = before.attempt(agent)
        is_final = agent == self._final_agent
        after = replace(
            before,
            attempts={**before.attempts, agent: attempt},
            fresh=() if is_final else tuple({*before.fresh, agent}),
            log=(*before.log, (agent, attempt.answer))[-MAX_LOG:],
            is_done=is_final and self._is_agreed(before, agent, attempt),
        )
        final = after.attempt(self._final_agent)
        return Transition(
            encode_state(after),
            team_reward=float(attempt.is_correct) - float(last.is_correct) if is_final else 0.0,
            local_rewards={
                term: mark - last.marks.get(term, 0.0) for term, mark in attempt.marks.items()
            },
            done=after.is_done,
            success=final.is_correct,
            info={
                **info,
                "answer": attempt.answer,
                "is_correct": attempt.is_correct,
                "failure": "format" if attempt.answer is None else "wrong",
            },
        )

    def _over(self, state: bytes, now: State, agent: str) -> Transition:
        """Nothing changes once the episode is over."""
        nothing = dict.fromkeys(now.attempt(agent).marks, 0.0)
        success = now.attempt(self._final_agent).is_correct
        return Transition(state, 0.0, nothing, done=True, success=success)

    def _is_agreed(self, before: State, agent: str, attempt: Attempt) -> bool:
        """With the other's answer of this turn; alone, with one's own of the turn before."""
        other = next((a for a in before.fresh if a != agent), agent)
        return self._equivalence.agree(attempt.answer, before.attempt(other).answer)

    def _is_right(self, row: MathRow, answer: str | None) -> bool:
        """Whether it is the reference; of a request's problem no answer is known to be."""
        if not row.answer:
            return False
        return self._equivalence.is_equal(row.answer, answer, problem=row.problem)

    def _solution(self, row: MathRow, action: str) -> tuple[Attempt, Mapping[str, Any]]:
        boxed = read_boxed(action)
        marks = {
            "format": float(boxed.is_single),
            "correct": float(self._is_right(row, boxed.answer)),
        }
        return Attempt(boxed.answer, marks, text=action[-MAX_KEPT_CHARS:].strip()), {}

    def _program(self, row: MathRow, action: str) -> tuple[Attempt, Mapping[str, Any]]:
        source = text.read_program(action)
        if source is None:
            marks = {"builds": 0.0, "executes": 0.0, "correct": 0.0}
            return Attempt(None, marks, output="(no program could be read)"), {}
        run = self._sandbox.run(Program(source), self._limits)
        answer = read_printed(run.stdout) if run.is_ok else None
        marks = {
            "builds": float(not _is_unbuilt(run)),
            "executes": float(run.is_ok and answer is not None),
            "correct": float(self._is_right(row, answer)),
        }
        info = {"exit_code": run.exit_code, "limit": run.limit, "stdout": run.stdout[-1000:]}
        program = source[:MAX_KEPT_CHARS]
        return Attempt(answer, marks, text=program, output=_reported(run)[-MAX_KEPT_CHARS:]), info


def _is_unbuilt(run: Execution) -> bool:
    """The program never began: what Python says last is that it cannot be compiled."""
    complaint = run.stderr.rstrip().rsplit("\n", 1)[-1]
    return not run.is_ok and complaint.startswith(_NOT_BUILT)


def _reported(run: Execution) -> str:
    if run.limit:
        return f"{run.stdout[-MAX_KEPT_CHARS:]}\n(stopped: it ran into its {run.limit} limit)"
    if run.exit_code:
        complaint = run.stderr.rstrip().rsplit("\n", 1)[-1][:300]
        return f"{run.stdout[-MAX_KEPT_CHARS:]}\n(failed: {complaint or run.exit_code})"
    return run.stdout if run.stdout.strip() else "(nothing)"


def _known(agent: str) -> str:
    return known_agent(agent, text.AGENTS, task="Math")
