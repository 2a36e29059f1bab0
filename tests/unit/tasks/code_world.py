"""A sandbox at its seam: plain subprocesses, no isolation. For tests of the Code family only."""

import atexit
import functools
import json
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

from troupe.sandbox.sandbox import Execution, Limits, Program
from troupe.tasks.family import Split, Task
from troupe_tasks.code import Code, CodeParams
from troupe_tasks.code.environment import CodeEnvironment
from troupe_tasks.code.problem import Problem, TestCase

_SERVER = r"""
import atexit, json, os, random, signal, sys, time, traceback, types

def program():
    os.setsid()
    for number, name in ((0, "in"), (1, "out"), (2, "err")):
        os.dup2(os.open(name, os.O_RDWR | os.O_CREAT), number)
    os.closerange(3, 1024)
    source, status = open("source", encoding="utf-8", errors="surrogatepass").read(), 0
    for name in ("in", "out", "err", "source"): os.unlink(name)
    for number, name in ((0, "stdin"), (1, "stdout"), (2, "stderr")):
        setattr(sys, name, open(number, "w" if number else "r", encoding="utf-8", closefd=False))
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    try:
        exec(compile(source, "main.py", "exec"), main.__dict__)
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
        status = 1
    if "threading" in sys.modules: sys.modules["threading"]._shutdown()
    atexit._run_exitfuncs()
    sys.stdout.flush(); sys.stderr.flush()
    os._exit(status & 255)

def watch(pid, wall_s):
    began = time.monotonic()
    while True:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended or time.monotonic() - began > wall_s: break
        time.sleep(0.0005)
    try: os.killpg(pid, signal.SIGKILL)
    except OSError: pass
    code = os.waitstatus_to_exitcode(status) if ended else -9
    return code, not ended, time.monotonic() - began

for line in sys.stdin:
    job = json.loads(line)
    os.chdir(job["folder"])
    if os.fork() == 0:  # between a program and this server: programs kill their parents
        null = os.open("/dev/null", os.O_RDWR)
        os.dup2(null, 0); os.dup2(null, 1)
        pid = os.fork()
        if pid == 0:
            program()
        report = json.dumps(watch(pid, job["wall_s"]))
        open("../report", "w").write(report)
        os._exit(0)
    os.wait()
    is_there = os.path.exists("../report")
    print(open("../report").read() if is_there else json.dumps([-9, False, 0.0]), flush=True)
"""


class ProcessSandbox:
    """Runs each program in a fork of a fresh interpreter, in an empty folder, under a wall limit
    only."""

    level = "process"

    def __init__(self) -> None:
        self.num_runs = 0
        self.programs: list[Program] = []

    def run(self, program: Program, limits: Limits) -> Execution:
        self.num_runs += 1
        self.programs.append(program)
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            (outside := Path(folder, "outside")).mkdir()
            files = {"source": program.source, "in": program.stdin, "out": "", "err": ""}
            for name, text in files.items():
                (outside / name).write_bytes(text.encode(errors="surrogatepass"))
            streams = [(outside / name).open("rb") for name in ("out", "err")]
            code, is_late, wall_s = _asked({"folder": str(outside), "wall_s": limits.wall_time_s})
            output, errors = (stream.read(limits.output_bytes + 1) for stream in streams)
            for stream in streams:
                stream.close()
        limit = "wall_time" if is_late else "output" if len(output) > limits.output_bytes else None
        shown = output[: limits.output_bytes].decode("utf-8", "replace")
        return Execution(shown, errors.decode("utf-8", "replace"), code, limit, wall_s, 0)

    def close(self) -> None:
        pass


@functools.cache
def _server() -> "subprocess.Popen[bytes]":
    server = subprocess.Popen(
        [sys.executable, "-s", "-S", "-P", "-c", _SERVER],
        env={"PYTHONHASHSEED": "0"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    atexit.register(server.communicate)
    return server


_lock = threading.Lock()


def _asked(job: dict[str, object]) -> tuple[int, bool, float]:
    with _lock:
        server = _server()
        assert server.stdin is not None
        assert server.stdout is not None
        server.stdin.write(json.dumps(job).encode() + b"\n")
        server.stdin.flush()
        code, is_late, wall_s = json.loads(server.stdout.readline())
        return code, is_late, wall_s


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
