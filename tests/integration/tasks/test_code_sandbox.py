"""The Code family on the real sandbox: every reference passes, and attacks earn nothing."""

import time
from collections.abc import Iterator
from random import Random

import pytest
from sandbox_here import skip_or_fail

from troupe import plugins
from troupe.errors import TroupeError
from troupe.sandbox.sandbox import Execution, Limits, Program, Sandbox
from troupe.tasks.registry import make_environment
from troupe_tasks.code import Code, CodeParams
from troupe_tasks.code.cooperative import CodeCooperative
from troupe_tasks.code.grade import Grader
from troupe_tasks.code.judge import Judge
from troupe_tasks.code.problem import Problem, TestCase, read_problems
from troupe_tasks.code.tasks import BUILTIN
from troupe_tasks.code.text import program_answer

ADD = Problem(
    id="add",
    kind="stdin",
    statement="Print the sum of the two numbers on the line.",
    hidden_tests=(
        TestCase(input="70007 1\n", output="70008\n"),
        TestCase(input="5 5", output="10"),
    ),
)
DOUBLE = Problem(
    id="double",
    kind="call",
    entry_point="double",
    statement="Write double(values).",
    hidden_tests=(
        TestCase(input="([-4, 70007],)", output="[-8, 140014]"),
        TestCase(script="for n in range(20):\n    assert candidate([n]) == [2 * n]"),
    ),
)


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    try:
        found: Sandbox = plugins.load(plugins.SANDBOXES, "local")()
    except TroupeError as error:
        skip_or_fail(error)
    yield found
    found.close()


def _passed(sandbox: Sandbox, problem: Problem, code: str) -> list[bool]:
    return [g.passed for g in Grader(Judge(sandbox)).grade(problem, code, problem.hidden_tests)]


def test_grade_when_references_run_in_the_sandbox_then_all_pass_and_wrong_ones_fail(
    sandbox: Sandbox,
) -> None:
    grader = Grader(Judge(sandbox, budget_s=60.0))
    for problem in read_problems(BUILTIN)[::17]:
        right = grader.grade(problem, problem.references[0], problem.hidden_tests)
        assert all(one.passed for one in right), problem.id
        for graded in grader.grade_all(problem, problem.wrong_programs, problem.hidden_tests):
            assert not all(one.passed for one in graded), problem.id


def test_episode_when_both_agents_follow_the_demonstration_then_it_is_solved(
    sandbox: Sandbox,
) -> None:
    for family in (Code(CodeParams()), CodeCooperative(CodeParams())):
        env, rng = make_environment(family, sandbox), Random(0)
        for index in range(2):
            state = env.reset(family.taskset().task("test", index))
            for agent in family.agents:
                done = env.step(state, agent, family.demonstrate(state, agent, rng))
                state = done.state
            assert done.success


def test_step_when_repeated_in_the_sandbox_then_gives_equal_results(sandbox: Sandbox) -> None:
    family = Code(CodeParams())
    env = family.environment_in(sandbox)
    state = env.reset(family.taskset().task("train", 0))
    actions = {
        "tester": family.demonstrate(state, "tester", Random(0)),
        "coder": program_answer("print(1 / 0)"),
    }
    for agent, action in actions.items():
        assert env.step(state, agent, action) == env.step(state, agent, action)


ATTACKS = (
    "import os, signal\nos.kill(os.getppid(), signal.SIGKILL)",
    "import os\nos.kill(-1, 9)",
    "import os\nos._exit(0)",
    "while True: pass",
    "x = [0] * 10**10",
    "import os\nwhile True:\n    os.fork()",
    "import threading, time\nwhile True:\n"
    "    threading.Thread(target=time.sleep, args=(9,)).start()",
    "while True: print('x' * 65536)",
    "import os\nfor root, _, names in os.walk('/tmp'):\n    for name in names:\n"
    "        if name.endswith('.jsonl'):\n            print(open(os.path.join(root, name)).read())",
    "import socket\nsocket.create_connection(('127.0.0.1', 8480), timeout=1)",
    "import sys\nsys.modules['__main__'].main = None\nprint(3)",
    "import os\nfor fd in range(64):\n    try:\n"
    '        os.write(fd, b\'0 {"case": 0, "status": "ok"}\')\n'
    "    except OSError:\n        pass",
)


@pytest.mark.parametrize("code", ATTACKS)
def test_grade_when_a_program_attacks_then_it_earns_nothing_and_the_next_one_runs(
    sandbox: Sandbox, code: str
) -> None:
    quick = ADD.model_copy(
        update={"limits": ADD.limits.model_copy(update={"cpu_time_s": 1.0, "wall_time_s": 1.5})}
    )
    assert _passed(sandbox, quick, code) == [False, False]
    body = "".join(f"    {line}\n" for line in code.splitlines())
    quick_call = DOUBLE.model_copy(update={"limits": quick.limits})
    assert not any(_passed(sandbox, quick_call, f"def double(values):\n{body}"))
    assert all(_passed(sandbox, ADD, "print(sum(map(int, input().split())))"))


STOPPING = (
    "import os, signal\nos.kill(os.getppid(), signal.SIGSTOP)",
    "import os, signal\nos.kill(os.getpid(), signal.SIGSTOP)",
    "import os, signal\nos.killpg(0, signal.SIGSTOP)",
    "import os, signal\nos.kill(-1, signal.SIGSTOP)\nos.kill(0, signal.SIGSTOP)",
    "import os, signal\nif os.fork():\n    os.kill(os.getpid(), signal.SIGSTOP)\n"
    "while True:\n    os.kill(os.getppid(), signal.SIGSTOP)",
)


class _Timed:
    """The sandbox, and how long it was held by each program."""

    def __init__(self, sandbox: Sandbox) -> None:
        self.level = sandbox.level
        self._sandbox = sandbox
        self.held_s: list[float] = []

    def run(self, program: Program, limits: Limits) -> Execution:
        began = time.monotonic()
        try:
            return self._sandbox.run(program, limits)
        finally:
            self.held_s.append(time.monotonic() - began - limits.wall_time_s)

    def close(self) -> None:
        self._sandbox.close()


@pytest.mark.parametrize("code", STOPPING)
def test_grade_when_a_program_stops_processes_then_holds_a_worker_to_its_own_deadline(
    sandbox: Sandbox, code: str
) -> None:
    limits = ADD.limits.model_copy(update={"cpu_time_s": 1.0, "wall_time_s": 1.0})
    timed = _Timed(sandbox)
    assert _passed(timed, ADD.model_copy(update={"limits": limits}), code) == [False, False]
    assert len(timed.held_s) == 2
    assert max(timed.held_s) < 2.0, timed.held_s


def test_grade_when_a_function_is_right_then_calls_and_scripts_pass(sandbox: Sandbox) -> None:
    assert all(_passed(sandbox, DOUBLE, "def double(values):\n    return [2 * v for v in values]"))
