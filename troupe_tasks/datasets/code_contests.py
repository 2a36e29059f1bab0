"""CodeContests: competition problems with right and wrong programs.

Format: https://huggingface.co/datasets/deepmind/code_contests (name, description, public_tests,
private_tests, generated_tests: input and output lists; solutions, incorrect_solutions: language
and solution lists; time_limit, memory_limit_bytes, cf_rating, ...). Languages are numbers:
0 unknown, 1 Python 2, 2 C++, 3 Python 3, 4 Java. Only Python 3 programs are kept.
"""

from typing import Any

from troupe.data.dataset import Dataset, RefusedRowError, Row
from troupe.data.fields import record, text
from troupe_tasks.code.problem import Problem, TestCase
from troupe_tasks.code.published import MAX_REFERENCES, MAX_WRONG, finished

PYTHON3 = 3
MAX_GENERATED = 32
"""Generated tests that are kept; there are up to some hundreds."""
PYTHON_FACTOR = 3.0
"""Time limits are set for C++; Python programs get this much more."""


def convert(row: Row) -> dict[str, Any]:
    """A stdin problem; hidden tests are the private ones, then generated ones."""
    if row.get("input_file") or row.get("output_file"):
        raise RefusedRowError("reads_a_file")
    hidden = [*_tests(row, "private_tests"), *_tests(row, "generated_tests")[:MAX_GENERATED]]
    if not hidden:
        raise RefusedRowError("no_hidden_test")
    return finished(
        {
            "id": f"code_contests/{text(row, 'name')}",
            "kind": "stdin",
            "statement": text(row, "description"),
            "public_tests": _tests(row, "public_tests"),
            "hidden_tests": hidden,
            "references": _programs(row, "solutions")[:MAX_REFERENCES],
            "wrong_programs": _programs(row, "incorrect_solutions")[:MAX_WRONG],
            "checker": {"kind": "float"},
            "limits": _limits(row),
            "source": "code_contests",
            "difficulty": str(row.get("cf_rating") or ""),
        }
    )


def _tests(row: Row, name: str) -> list[TestCase]:
    both = row.get(name)
    if not both:
        return []
    lists = record(both, f"{name}_have_no_fields")
    pairs = zip(lists.get("input") or [], lists.get("output") or [], strict=False)
    return [TestCase(input=str(test_input), output=str(out)) for test_input, out in pairs]


def _programs(row: Row, name: str) -> list[str]:
    both = row.get(name)
    if not both:
        return []
    lists = record(both, f"{name}_have_no_fields")
    pairs = zip(lists.get("language") or [], lists.get("solution") or [], strict=False)
    return [str(source) for language, source in pairs if language in (PYTHON3, "PYTHON3")]


def _limits(row: Row) -> dict[str, Any]:
    """The published limits, with more time, inside what a problem may ask for."""
    published = row.get("time_limit")
    seconds = 2.0
    if isinstance(published, dict):
        seconds = float(published.get("seconds") or 0) + float(published.get("nanos") or 0) / 1e9
    cpu_s = min(max(seconds * PYTHON_FACTOR, 2.0), 20.0)
    memory = row.get("memory_limit_bytes")
    size = int(memory) if isinstance(memory, int) and memory > 0 else 256 * 1024 * 1024
    return {
        "cpu_time_s": cpu_s,
        "wall_time_s": cpu_s * 3,
        "memory_bytes": min(max(size, 128 * 1024 * 1024), 1024 * 1024 * 1024),
    }


DATASET = Dataset(
    name="code_contests",
    task="code",
    title="CodeContests",
    hub_id="deepmind/code_contests",
    splits={
        "train": ("data/train-*.parquet",),
        "validation": ("data/valid-*.parquet",),
        "test": ("data/test-*.parquet",),
    },
    schema=Problem,
    convert=convert,
    licence="CC-BY-4.0",
    citation="Li et al. 2022, Competition-Level Code Generation with AlphaCode, arXiv 2203.07814",
    format_source="https://huggingface.co/datasets/deepmind/code_contests",
    contamination_fields=("statement",),
)
