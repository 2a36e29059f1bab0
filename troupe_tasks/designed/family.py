"""A workflow that a model designs, as a task family over the tasks of another one."""

from collections.abc import Mapping, Sequence
from random import Random
from typing import Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field

from troupe.errors import InvalidArgumentError
from troupe.sandbox.sandbox import Limits, Sandbox
from troupe.tasks.family import HiddenTexts, Task, Taskset
from troupe.tasks.optional import Policy, required_policy
from troupe.tasks.registry import make_environment
from troupe_tasks.designed import text
from troupe_tasks.designed.attackers import attackers_of
from troupe_tasks.designed.environment import DesignedEnvironment, DesignRules
from troupe_tasks.designed.plan import MAX_LINES, Node, read_plan
from troupe_tasks.designed.state import State, decode_state
from troupe_tasks.programs.judge import InnerFamily
from troupe_tasks.programs.params import JudgeParams

OperatorName = Literal["answer", "review", "revise", "pick", "program", "vote"]

_PLANS = (
    "a = answer()",
    'a = answer("work step by step")\nb = review(a)\nc = revise(a, b)',
    'a = answer()\nb = answer("another way")\nc = pick(a, b)',
    "a = answer()\nb = answer()\nc = answer(a)\nd = vote(a, b, c)",
    "a = program()",
    "a = program()\nb = answer(a)\nc = vote(a, b)",
)

NOTHING_WRONG = "I find nothing wrong."


class DesignedParams(BaseModel):
    """Whose tasks are solved, and what a plan may hold."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    judge: JudgeParams = Field(
        default=JudgeParams(name="math", agent="reasoner"),
        description="The inner family: its tasks, and as which of its agents the answer is judged.",
    )
    operators: tuple[OperatorName, ...] = Field(
        default=("answer", "review", "revise", "pick", "program", "vote"),
        min_length=1,
        description="Operators that a plan may use.",
    )
    max_lines: int = Field(default=6, ge=1, le=MAX_LINES, description="Most lines of a plan.")
    plan: str | None = Field(
        default=None,
        description="The plan of every problem; nobody designs then, and the executor is the only "
        "agent. To compare designed plans with, such as five answers and a vote.",
    )
    printed: str = Field(
        default="\\boxed{...}",
        pattern=r"\.\.\.",
        max_length=200,
        description="How an answer that a program printed is put to the inner family; ... is the "
        "last line that it printed.",
    )
    program_time_s: float = Field(
        default=5.0, gt=0, le=60, description="Seconds that a program may run."
    )
    program_memory_mib: int = Field(
        default=256, ge=16, le=4096, description="Memory of a program, MiB."
    )


class Designed:
    """A designer writes a plan, an executor plays its lines; the inner family judges the last one.

    Example: ``Designed(DesignedParams()).taskset().task("train", 0)``.
    """

    name: ClassVar[str] = "designed"
    agents: tuple[str, ...] = text.AGENTS
    Params: ClassVar[type[BaseModel]] = DesignedParams
    local_terms: Mapping[str, Mapping[str, float]] = {
        text.DESIGNER: {"legal": 0.2, "calls": -0.1},
        text.EXECUTOR: {"format": 0.05},
    }
    return_bound: float = 0.0
    usual_workflow: Mapping[str, Any] = {}

    def __init__(self, params: BaseModel) -> None:
        self._params = DesignedParams.model_validate(params.model_dump())
        self._inner = InnerFamily(self._params.judge)
        self.return_bound = self._inner.family.return_bound
        self._plan = self._fixed_plan()
        if self._plan:
            self.agents = (text.EXECUTOR,)
            self.local_terms = {text.EXECUTOR: self.local_terms[text.EXECUTOR]}
        operators = {node.operator for node in self._plan} or self._params.operators
        self.needs_sandbox = self._inner.needs_sandbox or "program" in operators
        self.usual_workflow = {
            "kind": "self_play",
            "order": list(self.agents),
            "max_turns": self._params.max_lines,
        }
        self.needed_turns = sum(node.asks for node in self._plan)

    def taskset(self) -> Taskset:
        """The inner family's tasks."""
        return self._inner.taskset

    def environment(self) -> DesignedEnvironment:
        """The interpreter of plans, without a sandbox.

        Raises InvalidArgumentError when the inner family needs one.
        """
        return self._environment(None)

    def environment_in(self, sandbox: Sandbox) -> DesignedEnvironment:
        """The interpreter of plans; programs run in ``sandbox``."""
        return self._environment(sandbox)

    def demonstrate(self, state: bytes, agent: str, rng: Random) -> str:
        """One of a few good plans; what the inner family's script answers."""
        if agent == text.DESIGNER:
            return rng.choice(self._plans())
        return self._said(decode_state(state), rng, "demonstrate")

    def random_action(self, state: bytes, agent: str, rng: Random) -> str:
        """One of the same plans; a random answer of the inner family."""
        if agent == text.DESIGNER:
            return rng.choice(self._plans())
        return self._said(decode_state(state), rng, "random_action")

    def hidden_texts(self, task: Task) -> HiddenTexts:
        """The inner family's."""
        return self._inner.hidden_texts(task)

    def vocabulary(self) -> Sequence[str]:
        """Words of the prompts, of good plans and what they lead to, and the inner family's."""
        params = self._params
        plans = " ".join(self._plans())
        words = [
            *(*text.words(params.operators, params.max_lines), *"abcdef"),
            *(*plans.split(), *plans.replace('"', " ").split()),
            *(*NOTHING_WRONG.split(), "```python"),
        ]
        return [*dict.fromkeys([*words, *self._inner.vocabulary()])]

    def attackers(self) -> Mapping[str, Policy]:
        """Cheats at the lines of good plans, and plans that are none."""
        return attackers_of(self._plans())

    def _fixed_plan(self) -> tuple[Node, ...]:
        params = self._params
        if params.plan is None:
            return ()
        reading = read_plan(params.plan, operators=params.operators, max_lines=params.max_lines)
        if not reading.nodes:
            raise InvalidArgumentError(
                f"the plan can't be read: {reading.why}", pointer="/task/params/plan"
            )
        return reading.nodes

    def _plans(self) -> list[str]:
        """Good plans of operators that are there."""
        allowed, lines = self._params.operators, self._params.max_lines
        kept = [
            plan
            for plan in _PLANS
            if plan.count("\n") < lines and all(op in allowed for op in _operators(plan))
        ]
        return kept or [f"a = {allowed[0]}()"]

    def _said(self, now: State, rng: Random, kind: str) -> str:
        node = now.waiting
        if node is not None and node.operator == "review":
            return NOTHING_WRONG
        if node is not None and node.operator == "pick":
            return f"PICK: {rng.choice(node.inputs)}"
        policy = required_policy(
            self._inner.family, kind, needed_by="scripted play", instead="play another policy"
        )
        said = policy(now.inner, self._params.judge.agent, rng)
        if node is not None and node.operator == "program":
            return f"```python\nprint({self._bare(said)!r})\n```"
        return said

    def _bare(self, said: str) -> str:
        """What stands in ``said`` where ``printed`` has its dots."""
        before, _, after = self._params.printed.partition("...")
        inside = said.rpartition(before)[2] if before else said
        return inside.rpartition(after)[0] if after and after in inside else inside

    def _environment(self, sandbox: Sandbox | None) -> DesignedEnvironment:
        params = self._params
        rules = DesignRules(
            agent=params.judge.agent,
            operators=params.operators,
            max_lines=params.max_lines,
            printed=params.printed,
            plan=self._plan,
            limits=Limits(
                wall_time_s=2 * params.program_time_s,
                cpu_time_s=params.program_time_s,
                memory_bytes=params.program_memory_mib * 1024 * 1024,
            ),
        )
        return DesignedEnvironment(make_environment(self._inner.family, sandbox), sandbox, rules)


def _operators(plan: str) -> list[str]:
    return [line.partition(" = ")[2].partition("(")[0] for line in plan.split("\n")]
