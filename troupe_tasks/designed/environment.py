"""Reads the designer's plan, asks the executor line by line, and has the last output judged."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from troupe.errors import InvalidArgumentError
from troupe.sandbox.sandbox import Limits, Program, Sandbox
from troupe.tasks.agents import known_agent
from troupe.tasks.family import Environment, Observation, Task, Transition, close_environment
from troupe_tasks.designed import text
from troupe_tasks.designed.plan import Node, read_plan
from troupe_tasks.designed.state import Output, State, decode_state, encode_state
from troupe_tasks.designed.team_source import TeamSource

MAX_OUTPUT_CHARS = 1_600
"""The end of a text that is kept, and judged."""


@dataclass(frozen=True, slots=True)
class DesignRules:
    """What plans may hold, as whom the inner family judges, and what a printed answer becomes.

    ``plan``: that of every problem, where nobody designs.
    """

    agent: str
    operators: tuple[str, ...]
    max_lines: int
    printed: str
    limits: Limits
    plan: tuple[Node, ...] = ()


class DesignedEnvironment:
    """The pure function of a designed workflow: see ``troupe.tasks.family.Environment``."""

    def __init__(self, inner: Environment, sandbox: Sandbox | None, rules: DesignRules) -> None:
        self._inner = inner
        self._sandbox = sandbox
        self._rules = rules

    def close(self) -> None:
        """Close the inner environment."""
        close_environment(self._inner)

    def reset(self, task: Task) -> bytes:
        """The inner family's first state, and no plan unless it is given."""
        return encode_state(State(self._inner.reset(task), plan=self._rules.plan))

    def observe(self, state: bytes, agent: str) -> Observation:
        """The language of plans for the designer, the waiting line for the executor."""
        now = decode_state(state)
        if not _may_act(now, agent):
            return ()
        question = self._inner.observe(now.inner, self._rules.agent)
        if agent == text.DESIGNER:
            return text.design(question, self._rules.operators, self._rules.max_lines)
        assert now.waiting is not None
        return text.ask(question, now, now.waiting)

    def step(self, state: bytes, agent: str, action: str) -> Transition:
        """Read the plan, or take ``action`` as the output of the waiting line."""
        now = decode_state(state)
        if not _may_act(now, agent):
            return Transition(state, 0.0, {}, now.is_done, now.is_won)
        if agent == text.DESIGNER:
            return self._designed(now, action)
        node = now.waiting
        assert node is not None
        output, is_read = self._output(now, node, action)
        calls = sum(line.asks for line in now.plan)
        # Each line weighs 1 / calls: a longer plan does not pay the executor more.
        local = {"format": float(is_read) / calls}
        after = replace(now, outputs={**now.outputs, node.name: output})
        return self._forward(after, local, {"line": node.name, "operator": node.operator})

    def program_of(self, task: Task, plan: str) -> str:
        """``plan``, made for ``task``, as a LangGraph program that needs no Troupe.

        Raises InvalidArgumentError where ``plan`` can't be read.
        """
        rules = self._rules
        reading = read_plan(plan, operators=rules.operators, max_lines=rules.max_lines)
        if not reading.nodes:
            raise InvalidArgumentError(f"the plan can't be read: {reading.why}")
        state = self._inner.reset(task)
        source = TeamSource(
            self._inner.observe(state, rules.agent),
            rules.printed,
            names_answers="answer" in self._inner.step(state, rules.agent, "").info,
            max_output_chars=MAX_OUTPUT_CHARS,
            program_time_s=rules.limits.cpu_time_s,
        )
        return source.written(reading.nodes)

    def _designed(self, now: State, action: str) -> Transition:
        rules = self._rules
        reading = read_plan(action, operators=rules.operators, max_lines=rules.max_lines)
        local = {
            "legal": float(bool(reading.nodes)),
            "calls": reading.num_calls / rules.max_lines,
        }
        if not reading.nodes:
            after = encode_state(replace(now, is_done=True))
            info = {"failure": "plan", "why": reading.why, "calls": 0}
            return Transition(after, 0.0, local, done=True, success=False, info=info)
        return self._forward(replace(now, plan=reading.nodes), local, {})

    def _forward(self, now: State, local: Mapping[str, float], info: dict[str, Any]) -> Transition:
        """Play the lines that ask nobody; at the end, have the last output judged."""
        while (node := now.waiting) is not None and not node.asks:
            output = _voted([now.outputs[name] for name in node.inputs])
            now = replace(now, outputs={**now.outputs, node.name: output})
        info = {**info, **_shares(now.plan)}
        if now.waiting is not None:
            return Transition(encode_state(now), 0.0, local, done=False, success=False, info=info)
        last = now.outputs[now.plan[-1].name]
        judged = self._inner.step(now.inner, self._rules.agent, last.text)
        now = replace(now, is_done=True, is_won=judged.success)
        info |= {"answer": last.answer, "inner": dict(judged.info)}
        if not judged.success:
            info["failure"] = "format" if last.answer is None else "wrong"
        return Transition(
            encode_state(now), judged.team_reward, local, done=True, success=now.is_won, info=info
        )

    def _output(self, now: State, node: Node, action: str) -> tuple[Output, bool]:
        """What the line comes to, and whether ``action`` had the form that was asked for."""
        kept = action[-MAX_OUTPUT_CHARS:].strip()
        if node.operator == "review":
            return Output(kept), bool(kept)
        if node.operator == "pick":
            name = text.picked(action, node)
            return now.outputs[name or node.inputs[0]], name is not None
        if node.operator == "program":
            printed = self._printed(action)
            if printed is None:
                return Output(text.NO_ANSWER), False
            kept = self._rules.printed.replace("...", printed, 1)
        answer = self._read(now.inner, kept)
        return Output(kept, answer), answer is not None

    def _read(self, inner: bytes, kept: str) -> str | None:
        """The answer that the inner family reads in ``kept``, right or wrong.

        A family that does not name it in ``info`` reads the whole text.
        """
        info = self._inner.step(inner, self._rules.agent, kept).info
        answer = info.get("answer", kept or None)
        return None if answer is None else str(answer)[:MAX_OUTPUT_CHARS]

    def _printed(self, action: str) -> str | None:
        """The last line that the program in ``action`` prints; None when it fails."""
        source = text.read_program(action)
        if source is None:
            return None
        if self._sandbox is None:
            raise InvalidArgumentError(
                "the plan's program needs a sandbox: use environment_in, or leave the operator "
                "'program' out",
                pointer="/task/params/operators",
            )
        run = self._sandbox.run(Program(source), self._rules.limits)
        lines = run.stdout.strip().splitlines()
        return lines[-1][:200].strip() or None if run.is_ok and lines else None


def _voted(inputs: list[Output]) -> Output:
    """The first input with the most frequent answer; without any answer, the first input."""
    votes = Counter(output.answer for output in inputs if output.answer is not None)
    if not votes:
        return inputs[0]
    most = max(votes.values())
    return next(o for o in inputs if o.answer is not None and votes[o.answer] == most)


def _shares(plan: tuple[Node, ...]) -> dict[str, Any]:
    """Calls of the problem, and the share of each operator among the lines."""
    counts = Counter(node.operator for node in plan)
    return {
        "calls": sum(node.asks for node in plan),
        "operators": {name: round(n / len(plan), 4) for name, n in sorted(counts.items())},
    }


def _may_act(now: State, agent: str) -> bool:
    known_agent(agent, text.AGENTS, task="Designed")
    if now.is_done:
        return False
    return not now.plan if agent == text.DESIGNER else bool(now.plan)
