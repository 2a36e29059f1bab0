"""A sandbox at its seam: plain subprocesses, no isolation. For tests of the Code family only."""

import subprocess
import sys
import tempfile
import time

from troupe.sandbox.sandbox import Execution, Limits, Program
from troupe.tasks.family import Split, Task
from troupe_tasks.code import Code, CodeParams
from troupe_tasks.code.environment import CodeEnvironment
from troupe_tasks.code.problem import Problem, TestCase


_PARENT = ("/bin/sh", "-c", '"$@"; exit $?', "sh")
"""Between a program and the tests: programs kill their parents."""
_SIGNALLED = 128


class ProcessSandbox:
    """Runs each program as `python -I` in an empty folder, under a wall limit only."""

    level = "process"

    def __init__(self) -> None:
        self.num_runs = 0
        self.programs: list[Program] = []

    def run(self, program: Program, limits: Limits) -> Execution:
        self.num_runs += 1
        self.programs.append(program)
        began = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            try:
                done = subprocess.run(
                    [*_PARENT, sys.executable, "-s", "-S", "-P", "-c", program.source],
                    env={"PYTHONHASHSEED": "0"},
                    input=program.stdin.encode(),
                    capture_output=True,
                    cwd=folder,
                    timeout=limits.wall_time_s,
                    check=False,
                )
            except subprocess.TimeoutExpired as error:
                output = (error.stdout or b"").decode("utf-8", "replace")
                return Execution(output, "", -9, "wall_time", time.monotonic() - began, 0)
        output = done.stdout[: limits.output_bytes].decode("utf-8", "replace")
        errors = done.stderr.decode("utf-8", "replace")
        code = done.returncode
        status = _SIGNALLED - code if code > _SIGNALLED else code
        limit = "output" if len(done.stdout) > limits.output_bytes else None
        return Execution(output, errors, status, limit, time.monotonic() - began, 0)

    def close(self) -> None:
        pass


ADD = Problem(
    id="add",
    kind="stdin",
    statement="Print the sum of the two numbers on the line.",
    public_tests=(TestCase(input="1 2\n", output="3\n"),),
    hidden_tests=(
        TestCase(input="70007 1\n", output="70008\n"),
        TestCase(input="-3 1\n", output="-2\n"),
        TestCase(input="0 0\n", output="0\n"),
        TestCase(input="5 5\n", output="10\n"),
    ),
    spare_tests=(TestCase(input="-8 3\n", output="-5\n"),),
    references=("a, b = map(int, input().split())\nprint(a + b)\n",),
    wrong_programs=(
        "a, b = map(int, input().split())\nprint(abs(a) + abs(b))\n",
        "a, b = map(int, input().split())\nprint(a - b)\n",
    ),
    split="train",
)

DOUBLE = Problem(
    id="double",
    kind="call",
    entry_point="double",
    statement="Write double(values), which returns a list of the doubled values.",
    public_tests=(TestCase(input="([1, 2],)", output="[2, 4]"),),
    hidden_tests=(
        TestCase(input="([],)", output="[]"),
        TestCase(input="([-4, 70007],)", output="[-8, 140014]"),
    ),
    spare_tests=(TestCase(input="([3],)", output="[6]"),),
    references=("def double(values):\n    return [2 * v for v in values]\n",),
    wrong_programs=("def double(values):\n    return [v * v for v in values]\n",),
    split="train",
)


def made(problems: list[Problem], folder: str, **params: object) -> tuple[Code, CodeEnvironment]:
    """A family over ``problems``, all of them training ones, with its environment."""
    from pathlib import Path

    from troupe_tasks.code.problem import write_problems

    path = Path(folder) / "train.jsonl"
    write_problems(path, problems)
    family = Code(CodeParams.model_validate({"data": {"train": path}, **params}))
    return family, family.environment_in(ProcessSandbox())


def task_of(family: Code, index: int, split: Split = "train") -> Task:
    return family.taskset().task(split, index)
