"""Judging of the Code family: honest programs pass, and whatever a program tries earns nothing."""

import pytest
from code_world import ADD, DOUBLE, ProcessSandbox

from troupe_tasks.code.grade import Grader
from troupe_tasks.code.judge import Case, Job, Judge
from troupe_tasks.code.problem import Checker, Problem, ProgramLimits, TestCase

# Each leaves the task undone and tries to be paid for it in another way.
ATTACKS_STDIN = {
    "prints the public output": "print(3)",
    "exits early": "import sys\nsys.exit(0)",
    "exits at once": "import os\nos._exit(0)",
    "kills its parent": "import os, signal\nos.kill(os.getppid(), signal.SIGKILL)",
    "forges result lines": (
        "import os, json, gc\n"
        "nonces = [o['nonce'] for o in gc.get_objects() if isinstance(o, dict) and 'nonce' in o]\n"
        "for nonce in nonces or ['0' * 24]:\n"
        "    for n in range(9):\n"
        "        line = nonce + ' ' + json.dumps({'case': n, 'status': 'ok', 'passed': True,\n"
        "            'output': '3', 'value': True}) + '\\n'\n"
        "        os.write(1, line.encode())\n"
        "        for fd in ('1', '3', '4'):\n"
        "            try:\n"
        "                with open(f'/proc/{os.getppid()}/fd/{fd}', 'w') as out:\n"
        "                    out.write(line)\n"
        "            except OSError:\n"
        "                pass\n"
    ),
    "patches the judge's modules": (
        "import builtins, json, sys\n"
        "class Yes:\n"
        "    def __eq__(self, other): return True\n"
        "    __hash__ = None\n"
        'json.dumps = lambda *a, **k: \'{"status": "ok", "passed": true}\'\n'
        "builtins.isinstance = lambda *a: True\n"
        "sys.modules['troupe'] = Yes()\n"
        "print('3')\n"
    ),
    "looks for tests on disk": (
        "import os\n"
        "for folder, _, names in os.walk('.'):\n"
        "    for name in names:\n"
        "        print(open(os.path.join(folder, name)).read())\n"
        "print(os.environ)\n"
    ),
    "echoes its input": "import sys\nprint(sys.stdin.read())",
    "prints every small number": "print(*range(-9, 20))",
    "leaves a process behind": (
        "import os\nif os.fork() == 0:\n    os.setsid()\n    os.write(1, b'41')\n"
    ),
    "is no Python": "print((",
    "is nothing": "",
}

ATTACKS_CALL = {
    "returns what equals everything": (
        "class Yes(list):\n"
        "    def __eq__(self, other): return True\n"
        "    def __ne__(self, other): return False\n"
        "def double(values): return Yes([1])\n"
    ),
    "returns a number beyond all floats": (
        "class Huge(complex):\n    real = 10**400\ndef double(values): return Huge()\n"
    ),
    "returns an object that equals everything": (
        "class Yes:\n    def __eq__(self, other): return True\ndef double(values): return Yes()\n"
    ),
    "writes the result itself": (
        "import os\n"
        "def double(values):\n"
        '    os.write(63, b\'{"status": "ok", "passed": true, "value": [2, 4], "case": 1}\')\n'
        "    os._exit(0)\n"
    ),
    "writes rubbish as the result": (
        "import os\ndef double(values):\n    os.write(63, b'[' * 100000)\n    os._exit(0)\n"
    ),
    "exits inside the call": "import sys\ndef double(values): sys.exit(0)",
    "patches the encoder": (
        "import sys\n"
        "def double(values):\n"
        "    frame = sys._getframe(1)\n"
        "    frame.f_globals['encoded'] = lambda value, depth=0: [2, 4]\n"
        "    return None\n"
    ),
    "defines no function": "halve = 1",
    "returns a value that is nested without end": (
        "def double(values):\n    a = []\n    a.append(a)\n    return a\n"
    ),
    "returns a generator": "def double(values): return (2 * v for v in values)",
}


def _passed(problem: Problem, code: str, tests: tuple[TestCase, ...] | None = None) -> list[bool]:
    grader = Grader(Judge(ProcessSandbox()))
    return [one.passed for one in grader.grade(problem, code, tests or problem.hidden_tests)]


@pytest.mark.parametrize("name", ATTACKS_STDIN)
def test_grade_when_a_program_cheats_then_it_passes_no_hidden_test(name: str) -> None:
    assert not any(_passed(ADD, ATTACKS_STDIN[name]))


@pytest.mark.parametrize("name", ATTACKS_CALL)
def test_grade_when_a_function_cheats_then_it_passes_no_hidden_test(name: str) -> None:
    assert not any(_passed(DOUBLE, ATTACKS_CALL[name]))


@pytest.mark.parametrize("problem", [ADD, DOUBLE])
def test_grade_when_the_reference_runs_then_it_passes_and_no_expected_output_enters_the_sandbox(
    problem: Problem,
) -> None:
    sandbox = ProcessSandbox()
    graded = Grader(Judge(sandbox)).grade(problem, problem.references[0], problem.hidden_tests)
    assert all(one.passed for one in graded)
    told = " ".join(program.source + program.stdin for program in sandbox.programs)
    assert "70007" in told
    assert "70008" not in told
    assert "140014" not in told
    assert not any(program.files for program in sandbox.programs)


def test_grade_when_a_test_leaves_state_then_the_next_one_does_not_see_it() -> None:
    code = (
        "import os, builtins\n"
        "if os.path.exists('mark') or hasattr(builtins, 'mark'):\n"
        "    print('seen')\n"
        "builtins.mark = 1\n"
        "a, b = map(int, input().split())\nprint(a + b)\n"
    )
    assert all(_passed(ADD, code))


@pytest.mark.parametrize(
    "code",
    [
        "import sys\na, b = sys.stdin.buffer.read().split()\nprint(int(a) + int(b))",
        "import threading\n"
        "def main():\n    print(sum(map(int, input().split())))\n"
        "threading.Thread(target=main).start()",
        "import atexit, sys\nout = []\n"
        "atexit.register(lambda: sys.stdout.write(''.join(out)))\n"
        "out.append(str(sum(map(int, open(0).read().split()))))",
        "import os, sys\nos.write(1, str(sum(map(int, input().split()))).encode())\nsys.exit()",
        "def main():\n    print(sum(map(int, input().split())))\n"
        "if __name__ == '__main__':\n    main()",
    ],
)
def test_grade_when_a_program_is_right_in_its_own_way_then_it_passes(code: str) -> None:
    assert all(_passed(ADD, code))


def test_run_when_programs_fail_then_says_how() -> None:
    cases = {
        "print(1 / 0)": "error",
        "import sys\nsys.exit(3)": "exit",
        "import os\nos.abort()": "signal",
        "print('x' * 100000)": "output",
        "print((": "syntax",
        "print('ok')": "ok",
    }
    jobs = [Job("stdin", source) for source in cases]
    ran = Judge(ProcessSandbox()).run(
        jobs, [Case(n) for n in range(len(jobs))], ProgramLimits(), 5000
    )
    assert [one.status for one in ran] == list(cases.values())
    assert ran[0].error == "ZeroDivisionError: division by zero (line 1)"
    assert len(ran[3].output) <= 5000


@pytest.mark.parametrize(
    "source",
    [
        "def double(*a): return type('A' * 100000, (), {})()",
        "import os\ndef double(*a): raise type('A' * 100000, (Exception,), {})()",
        'import json\njson.dumps = lambda said: \'{"status": "ok", "value": {"\' + \'A\' * 100000 '
        "+ '\": 1}}'\ndef double(*a): return 1",
    ],
)
def test_run_when_a_program_fails_at_length_then_the_reason_is_cut(source: str) -> None:
    job, case = Job("call", source, "double"), Case(0, fields={"args": []})
    [ran] = Judge(ProcessSandbox()).run([job], [case], ProgramLimits(), 5000)
    assert ran.status in ("value", "error")
    assert "AAAA" in ran.error
    assert len(ran.error) <= 600


def test_run_when_a_program_loops_then_it_is_stopped_and_the_rest_is_skipped() -> None:
    limits = ProgramLimits(cpu_time_s=1.0, wall_time_s=0.3)
    judge = Judge(ProcessSandbox(), max_late=1)
    ran = judge.run([Job("stdin", "while True: pass")], [Case(0)] * 20, limits, 1000)
    assert [one.status for one in ran] == ["time", *["skipped"] * 19]


def test_run_when_the_budget_is_spent_then_the_run_is_late_and_the_rest_is_skipped() -> None:
    code = "import time\ntime.sleep(5)\nprint(1)"
    judge = Judge(ProcessSandbox(), budget_s=0.2)
    ran = judge.run([Job("stdin", code)], [Case(0)] * 3, ProgramLimits(), 1000)
    assert [one.status for one in ran] == ["time", "skipped", "skipped"]


def test_run_when_repeated_then_gives_equal_results() -> None:
    code = "import random\nprint(random.random(), input())"
    judge = Judge(ProcessSandbox())
    ran = [judge.run([Job("stdin", code)], [Case(0, "x")], ProgramLimits(), 1000) for _ in "ab"]
    assert ran[0][0].status == "ok"
    assert ran[0] == ran[1]


def test_run_when_cases_are_many_then_each_has_a_run_of_its_own() -> None:
    sandbox = ProcessSandbox()
    cases = [Case(0, f"{n}\n") for n in range(12)]
    ran = Judge(sandbox).run([Job("stdin", "print(input())")], cases, ProgramLimits(), 1000)
    assert [one.output for one in ran] == [f"{n}\n" for n in range(12)]
    assert [program.stdin for program in sandbox.programs] == [f"{n}\n" for n in range(12)]


def test_grade_when_a_checker_program_decides_then_it_runs_apart_from_the_program() -> None:
    problem = ADD.model_copy(
        update={
            "checker": Checker(
                kind="program",
                source="def check(given, expected, output):\n"
                "    return abs(int(output)) % 10 == abs(int(expected)) % 10\n",
            )
        }
    )
    sandbox = ProcessSandbox()
    graded = Grader(Judge(sandbox)).grade(
        problem, "a, b = map(int, input().split())\nprint(a + b + 10)\n", problem.hidden_tests
    )
    assert [one.passed for one in graded] == [True, False, True, True]  # -2 and 8 differ
    checked = [program for program in sandbox.programs if "def check" in program.source]
    ran = [program for program in sandbox.programs if program not in checked]
    assert len(ran) == len(checked) == 4
    assert not any("70008" in program.source + program.stdin for program in ran)
    assert not any("a + b + 10" in program.source + program.stdin for program in checked)


SCRIPTS = (
    TestCase(script="assert candidate([1]) == [2]\nassert not candidate([])"),
    TestCase(script="for n in range(5):\n    assert candidate([n, 70009]) == [2 * n, 140018]"),
    TestCase(script="assert candidate(candidate([1])) == [4]"),
    TestCase(script="assert abs(candidate([0.5])[0] - 1.0) < 1e-9"),
)


_ENDINGS = (
    "StopIteration", "StopAsyncIteration", "SystemExit", "GeneratorExit", "KeyboardInterrupt",
    "AssertionError",
)  # fmt: skip


@pytest.mark.parametrize("raised", _ENDINGS)
def test_grade_when_a_function_raises_to_end_its_script_then_passes_none(raised: str) -> None:
    scripts = (
        TestCase(script="assert all(a == b for a, b in zip(map(candidate, [[1]]), [[2]]))"),
        TestCase(script="for got in map(candidate, [[70009]]):\n    assert got == [140018]"),
        TestCase(script="assert [*filter(None, map(candidate, [[]]))] == []\n"
                        "assert sum(1 for _ in map(candidate, [[3], [4]])) == 2"),
    )  # fmt: skip
    assert _passed(DOUBLE, DOUBLE.references[0], scripts) == [True] * 3
    assert _passed(DOUBLE, f"def double(values): raise {raised}", scripts) == [False] * 3


def test_grade_when_tests_are_scripts_then_the_reference_passes_and_never_meets_them() -> None:
    sandbox = ProcessSandbox()
    graded = Grader(Judge(sandbox)).grade(DOUBLE, DOUBLE.references[0], SCRIPTS)
    assert [one.passed for one in graded] == [True] * 4
    for program in sandbox.programs:
        assert not ("2 * v" in program.source and "140018" in program.source)


@pytest.mark.parametrize(
    "code",
    [
        *ATTACKS_CALL.values(),
        "def double(values): raise AssertionError",
        "import builtins\nbuiltins.AssertionError = Exception\ndef double(values): return None",
        "def double(values): return values",
    ],
)
def test_grade_when_tests_are_scripts_then_cheats_pass_none(code: str) -> None:
    first_two = SCRIPTS[:2]
    assert _passed(DOUBLE, code, first_two) == [False, False]
