"""HumanEval as published: every canonical solution passes its own tests here."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from code_world import ProcessSandbox

from troupe_tasks.code.grade import Grader
from troupe_tasks.code.judge import Judge
from troupe_tasks.code.problem import Problem
from troupe_tasks.datasets import humaneval

PUBLISHED = Path(__file__).parents[3] / "data" / "HumanEval.jsonl.gz"
"""Where the published file of 164 rows is looked for; https://github.com/openai/human-eval."""

ROOT_OF = {
    "task_id": "HumanEval/32",
    "entry_point": "root_of",
    "prompt": "import math\n\n\ndef value(factors: list, x: float):\n"
    "    return sum(factor * math.pow(x, n) for n, factor in enumerate(factors))\n\n\n"
    'def root_of(factors: list):\n    """ An x with value(factors, x) == 0.\n    """\n',
    "canonical_solution": "    low, high = -1.0, 1.0\n"
    "    while value(factors, low) * value(factors, high) > 0:\n"
    "        low, high = low * 2.0, high * 2.0\n"
    "    while high - low > 1e-10:\n"
    "        middle = (low + high) / 2.0\n"
    "        if value(factors, middle) * value(factors, low) > 0:\n"
    "            low = middle\n"
    "        else:\n"
    "            high = middle\n"
    "    return low\n",
    "test": "def check(candidate):\n    import math\n    import random\n"
    "    rng = random.Random(7)\n    import copy\n    for _ in range(40):\n"
    "        factors = [rng.randint(1, 9) * rng.choice((-1, 1)) for _ in range(4)]\n"
    "        solution = candidate(copy.deepcopy(factors))\n"
    "        assert math.fabs(value(factors, solution)) < 1e-4\n",
}
"""A row of that shape: many calls, and each answer goes through functions before it is compared."""


def _passed(row: dict[str, Any], program: str | None = None) -> tuple[bool, int]:
    """Whether the row's own solution, or ``program``, passes, and the sandbox runs it took."""
    problem, sandbox = Problem.model_validate(humaneval.convert(row)), ProcessSandbox()
    code = program or problem.references[0]
    graded = Grader(Judge(sandbox, budget_s=60.0)).grade(problem, code, problem.hidden_tests)
    return all(one.passed for one in graded), sandbox.num_runs


def test_grade_when_a_loop_keeps_each_answer_then_its_calls_are_made_at_once() -> None:
    is_right, num_runs = _passed(ROOT_OF)
    assert is_right
    assert num_runs <= 45  # one for the calls, and one each


def test_grade_when_such_a_loop_meets_a_wrong_program_then_it_fails() -> None:
    wrong = ROOT_OF["prompt"] + "    return 0.5 if factors[0] % 2 else 1e9\n"
    assert not _passed(ROOT_OF, wrong)[0]


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_published_when_canonical_solutions_are_graded_then_all_164_pass() -> None:
    if not PUBLISHED.exists():
        pytest.skip(f"{PUBLISHED} is not here; it is data/HumanEval.jsonl.gz of openai/human-eval")
    rows = [json.loads(line) for line in gzip.decompress(PUBLISHED.read_bytes()).splitlines()]
    assert len(rows) == 164
    assert [row["task_id"] for row in rows if not _passed(row)[0]] == []
