"""No program finds, or makes the judge tell, anything of hidden tests, of checkers or of others.

Each program plays the coder on two problems that differ in their hidden parts alone. Whatever it
returns, prints, raises, names, or does with time and memory: what agents see is the same.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import canaries
import pytest
import reaches
from sandbox_here import skip_or_fail
from watched_host import TALLY

from troupe.errors import InvalidArgumentError
from troupe.sandbox.sandbox import Limits, Program, Sandbox
from troupe.tasks.family import Transition
from troupe_env.sandbox import open_sandbox
from troupe_env.sandbox.settings import SandboxSettings
from troupe_tasks.code import Code, CodeParams
from troupe_tasks.code.cooperative import CodeCooperative
from troupe_tasks.code.problem import Checker, Problem, ProgramLimits, TestCase, write_problems
from troupe_tasks.code.text import program_answer
from troupe_tasks.math.environment import MathEnvironment
from troupe_tasks.math.family import Math, MathParams

_HIDDEN = re.compile(r"CNRY[A-OQ-Y]\d{8}")
"""All but P, the letter of public tests, and Z."""
_LIMITS = ProgramLimits(cpu_time_s=6.0, wall_time_s=12.0)
_QUICK = ProgramLimits(cpu_time_s=1.0, wall_time_s=1.0)

TELLING = {
    "returns it": "    return found\n",
    "prints it": "    print(found)\n",
    "raises it": "    raise ValueError(found)\n",
    "names a file after it": (
        "    for name in [*found, 'x']: open(name, 'w').write(name)\n    return os.listdir('.')\n"
    ),
    "ends with it": "    sys.exit(str(found))\n",
    "takes time for it": "    import time\n    if BAD(found): time.sleep(60)\n    return 0\n",
    "takes memory for it": ("    x = bytearray(1 << 29) if BAD(found) else 0\n    return 0\n"),
    "ends by a signal for it": "    if BAD(found): os.abort()\n    return 0\n",
}
OWN = "    found = [text]\n"
"""What a run was given is its own, and must not be told of in another."""


def program(kind: str, reach: str, telling: str) -> str:
    """A program that looks for canaries and tells; ``text`` is what it was asked."""
    head = f"{reaches.PRELUDE}{reach}\ndef BAD(found): return 'CN' 'RYH' in str(found)\n"
    look = OWN if not reach else "    found = [text, *seen(reach)]\n"
    if kind == "call":
        return f"{head}def solve(text):\n{look}{telling}"
    return f"{head}def main(text):\n{look}{telling}print(main(input()))\n"


def problem(kind: str, letter: str, digits: str) -> Problem:
    """A problem whose hidden parts are canaries of these digits, and the rest is ever the same."""

    def case(name: str, number: int) -> TestCase:
        given, right = f"CNRY{name}{digits}{number:04}", f"CNRY{letter}{digits}{number:04}"
        pair = (repr((given,)), repr(right)) if kind == "call" else (given, right)
        return TestCase(input=pair[0], output=pair[1])

    public = case("P", 0).model_copy(update={"output": "'never'" if kind == "call" else "never"})
    fixed = {"input": public.input.replace(digits, "0000")}
    check = "def check(given, expected, output):\n    return expected in output\n"
    answer = "def solve(text):\n    return text\n" if kind == "call" else "print(input())\n"
    return Problem.model_validate(
        {
            "id": "canaries",
            "kind": kind,
            "entry_point": "solve" if kind == "call" else "",
            "statement": "Solve it.",
            "public_tests": [public.model_copy(update=fixed)],
            "hidden_tests": [case("H", 1), case("H", 2)],
            "spare_tests": [case("S", 3)],
            "references": [f"{answer}# CNRYR{digits}0000"],
            "wrong_programs": [f"def solve(text): pass # CNRYW{digits}0000"],
            "checker": Checker(kind="program", source=f"{check}# CNRYK{digits}0000"),
            "limits": _LIMITS,
            "split": "train",
        }
    )


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    try:
        opened = open_sandbox(SandboxSettings(level="namespaces", workers=1))
    except InvalidArgumentError as error:
        skip_or_fail(error)
    canaries.plant(opened, 1)
    yield opened
    opened.close()


def told(sandbox: Sandbox, folder: Path, asked: Problem, code: str) -> tuple[str, Transition]:
    """All that agents see after the program was judged, and the judgement."""
    path = folder / f"{asked.digest}.jsonl"
    write_problems(path, [asked])
    family = Code(CodeParams.model_validate({"data": {"train": path}}))
    env = family.environment_in(sandbox)
    done = env.step(env.reset(family.taskset().task("train", 0)), "coder", program_answer(code))
    prompts = [m.content for agent in family.agents for m in env.observe(done.state, agent)]
    return "\n".join(prompts).replace(code.strip(), ""), done


def check(sandbox: Sandbox, folder: Path, kind: str, code: str, limits: ProgramLimits) -> str:
    """Nothing hidden is told and nothing is paid; what was told."""
    first, second = (
        problem(kind, "E", digits).model_copy(update={"limits": limits})
        for digits in ("1111", "2222")
    )
    # Only the first problem's canaries are what the program takes time, memory or a signal for.
    second = second.model_copy(
        update={
            "hidden_tests": tuple(
                test.model_copy(update={"input": test.input.replace("RYH", "RYJ")})
                for test in second.hidden_tests
            )
        }
    )
    (seen, done), (other, also) = (told(sandbox, folder, p, code) for p in (first, second))
    assert _HIDDEN.findall(seen) == []
    assert _HIDDEN.findall(json.dumps(done.info)) == []
    assert seen == other
    assert (done.team_reward, done.local_rewards["hidden"]) == (0.0, 0.0)
    assert (also.team_reward, also.local_rewards["hidden"]) == (0.0, 0.0)
    return seen


_WAYS = [
    (f"{name}, and {way}", kind, reach, telling)
    for number, (name, reach) in enumerate(reaches.ALL.items())
    for way, telling in [list(TELLING.items())[number % 5]]
    for kind in ["call" if "return" in telling or number % 2 else "stdin"]
]


@pytest.mark.parametrize(("name", "kind", "reach", "telling"), _WAYS, ids=[w[0] for w in _WAYS])
def test_program_when_it_tells_all_that_it_reaches_then_nothing_hidden_is_told_or_paid(
    sandbox: Sandbox, tmp_path: Path, name: str, kind: str, reach: str, telling: str
) -> None:
    TALLY[f"the judge: {name}"] = False
    seen = check(sandbox, tmp_path, kind, program(kind, reach, telling), _LIMITS)
    assert "CNRYP" in seen  # what it was shown it may show
    TALLY[f"the judge: {name}"] = True


@pytest.mark.parametrize("way", TELLING)
@pytest.mark.parametrize("kind", ["call", "stdin"])
def test_program_when_it_tells_of_its_hidden_input_then_no_other_run_shows_it(
    sandbox: Sandbox, tmp_path: Path, kind: str, way: str
) -> None:
    name = f"the judge: a {kind} program is given a hidden input, and {way}"
    TALLY[name] = False
    check(sandbox, tmp_path, kind, program(kind, "", TELLING[way]), _QUICK)
    TALLY[name] = True


def test_run_when_a_program_finds_what_is_in_its_reach_then_the_search_says_so(
    sandbox: Sandbox,
) -> None:
    """The class test can fail: a canary of the run itself is found, by each search that could."""
    finders = 0
    for reach in reaches.ALL.values():
        source = f"held = 'CNRYA00000001' * 50\nclass B: b = [held]\n{reaches.PRELUDE}{reach}\n"
        done = sandbox.run(Program(source + "print(seen(reach))"), Limits(wall_time_s=30))
        finders += "CNRYA00000001" in done.stdout
    assert finders > 25


def test_helper_when_it_looks_for_hidden_tests_then_the_main_agent_reads_none(
    sandbox: Sandbox, tmp_path: Path
) -> None:
    asked = problem("call", "E", "1111")
    write_problems(tmp_path / "p.jsonl", [asked])
    family = CodeCooperative(CodeParams.model_validate({"data": {"train": tmp_path / "p.jsonl"}}))
    env = family.environment_in(sandbox)
    state = env.reset(family.taskset().task("train", 0))
    for reach in [*reaches.FRAMES.values(), *reaches.MEMORY.values()]:
        aux = f"{reaches.PRELUDE}{reach}\ndef aux(text):\n    raise ValueError(seen(reach))\n"
        state = env.step(state, "helper", program_answer(aux)).state
        main = "def solve(text):\n    return aux(text)\n"
        done = env.step(state, "main", program_answer(main))
        prompts = [m.content for agent in family.agents for m in env.observe(done.state, agent)]
        assert _HIDDEN.findall("\n".join(prompts)) == []
        assert not done.success


def test_tool_when_it_looks_for_the_answer_then_finds_nothing_of_this_or_other_problems(
    sandbox: Sandbox,
) -> None:
    family = Math(MathParams())
    env: MathEnvironment = family.environment_in(sandbox)
    taskset = family.taskset()
    for index, (name, reach) in enumerate(reaches.ALL.items()):
        TALLY[f"math: {name}"] = False
        canaries.plant(sandbox, 2)
        code = f"{reaches.PRELUDE}{reach}\nprint(seen(reach))"
        done = env.step(env.reset(taskset.task("test", index)), "tool", f"```python\n{code}\n```")
        prompt = "\n".join(
            m.content for agent in family.agents for m in env.observe(done.state, agent)
        )
        assert _HIDDEN.findall(prompt) == []
        assert done.local_rewards["correct"] == 0.0
        TALLY[f"math: {name}"] = True
