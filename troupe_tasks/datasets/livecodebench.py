"""LiveCodeBench code generation: contest problems with public and private tests.

Format: https://huggingface.co/datasets/livecodebench/code_generation_lite (question_title,
question_content, platform, question_id, contest_id, contest_date, starter_code, difficulty,
public_test_cases, private_test_cases, metadata). Tests are JSON lists of input, output and
testtype; private ones may be base64 of zlib of a pickle of that JSON text. The pickle is never
loaded: it is walked, and refused unless it is one bare string.
"""

import base64
import binascii
import json
import pickletools
import zlib
from typing import Any

from troupe.data.dataset import Dataset, RefusedRowError, Row
from troupe.data.fields import optional_text, text
from troupe_tasks.code.problem import Problem, TestCase
from troupe_tasks.code.published import IMPORTS, finished

MAX_UNPACKED_BYTES = 512 * 1024 * 1024
_STRING_OPCODES = frozenset(("SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8"))
_IDLE_OPCODES = frozenset(("PROTO", "FRAME", "MEMOIZE", "BINPUT", "LONG_BINPUT", "STOP"))


def convert(row: Row) -> dict[str, Any]:
    """A stdin problem, or a method of a class ``Solution``."""
    public = _tests(_parsed(row.get("public_test_cases"), "public_tests_unreadable"))
    hidden = _tests(private_cases(str(row.get("private_test_cases") or "")))
    if not hidden:
        raise RefusedRowError("no_hidden_test")
    name = _function_name(row)
    kinds = {kind for kind, _ in (*public, *hidden)}
    if kinds - {"stdin", "functional"} or len(kinds) > 1:
        raise RefusedRowError("mixed_test_types")
    is_call = kinds == {"functional"}
    if is_call and not name:
        raise RefusedRowError("no_function_name")
    make = _call_case if is_call else _stdin_case
    return finished(
        {
            "id": f"livecodebench/{text(row, 'question_id')}",
            "kind": "call" if is_call else "stdin",
            "entry_point": f"Solution.{name}" if is_call else "",
            "statement": text(row, "question_content"),
            "starter_code": str(row.get("starter_code") or ""),
            "prelude": IMPORTS if is_call else "",
            "public_tests": [make(test) for _, test in public],
            "hidden_tests": [make(test) for _, test in hidden],
            "checker": {"kind": "exact", "tuples_as_lists": True} if is_call else {"kind": "float"},
            "limits": {"cpu_time_s": 6.0, "wall_time_s": 18.0},
            "source": f"livecodebench/{optional_text(row, 'platform')}",
            "difficulty": optional_text(row, "difficulty"),
        }
    )


def private_cases(packed: str) -> Any:
    """The private tests, packed or plain; raises RefusedRowError for anything else."""
    try:
        return json.loads(packed)
    except (ValueError, RecursionError):
        pass
    try:
        unzip = zlib.decompressobj()
        data = unzip.decompress(base64.b64decode(packed, validate=True), MAX_UNPACKED_BYTES)
    except (binascii.Error, ValueError, zlib.error) as error:
        raise RefusedRowError("private_tests_unreadable") from error
    if not unzip.eof:
        raise RefusedRowError("private_tests_too_large")
    return _parsed(_bare_string(data), "private_tests_unreadable")


def _bare_string(data: bytes) -> str:
    """The one string that a pickle holds, found by walking its opcodes, of which none is run."""
    strings: list[str] = []
    try:
        for opcode, argument, _ in pickletools.genops(data):
            if opcode.name in _STRING_OPCODES:
                strings.append(str(argument))
            elif opcode.name not in _IDLE_OPCODES:
                raise RefusedRowError("private_tests_are_no_plain_string")
    except (ValueError, UnicodeDecodeError) as error:
        raise RefusedRowError("private_tests_unreadable") from error
    if len(strings) != 1:
        raise RefusedRowError("private_tests_are_no_plain_string")
    return strings[0]


def _parsed(value: Any, reason: str) -> Any:
    try:
        return json.loads(value) if isinstance(value, str) else value
    except (ValueError, RecursionError) as error:
        raise RefusedRowError(reason) from error


def _tests(value: Any) -> list[tuple[str, dict[str, str]]]:
    if not isinstance(value, list):
        raise RefusedRowError("tests_are_no_list")
    tests: list[tuple[str, dict[str, str]]] = []
    for item in value:
        if not isinstance(item, dict) or "input" not in item or "output" not in item:
            raise RefusedRowError("test_without_input")
        test = {"input": str(item["input"]), "output": str(item["output"])}
        tests.append((str(item.get("testtype", "stdin")), test))
    return tests


def _stdin_case(test: dict[str, str]) -> TestCase:
    return TestCase(input=test["input"], output=test["output"])


def _call_case(test: dict[str, str]) -> TestCase:
    """One JSON value a line for the arguments, and one for the result."""
    try:
        arguments = [json.loads(line) for line in test["input"].splitlines() if line.strip()]
        return TestCase(input=repr(tuple(arguments)), output=repr(json.loads(test["output"])))
    except (ValueError, RecursionError) as error:
        raise RefusedRowError("test_is_no_json") from error


def _function_name(row: Row) -> str:
    metadata = _parsed(row.get("metadata") or "{}", "metadata_unreadable")
    name = metadata.get("func_name") if isinstance(metadata, dict) else None
    return str(name or "")


DATASET = Dataset(
    name="livecodebench",
    task="code",
    title="LiveCodeBench",
    hub_id="livecodebench/code_generation_lite",
    splits={"test": ("test*.jsonl",)},
    schema=Problem,
    convert=convert,
    licence="CC",
    citation="Jain et al. 2024, LiveCodeBench: Holistic and Contamination Free Evaluation of Large "
    "Language Models for Code, arXiv 2403.07974",
    format_source="https://huggingface.co/datasets/livecodebench/code_generation_lite",
    contamination_fields=("statement",),
)
