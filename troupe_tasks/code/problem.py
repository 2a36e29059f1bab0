"""One programming problem: what is asked, how it is tested, and which programs are known wrong.

Owns the schema of a problem file (JSONL, one problem a line, versioned) and the split of a
problem. Never runs a program.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from troupe.data.overlap import near_verbatim
from troupe.errors import InvalidArgumentError
from troupe.tasks.family import Split

SCHEMA_VERSION: Literal[1] = 1
Kind = Literal["stdin", "call"]
REQUEST = "request"
"""The ``source`` of a problem that a user asks: nobody knows its hidden tests."""
_SIGNATURE = re.compile(r"^[ \t]*(?:async )?def ([A-Za-z_]\w*)\s*\(", re.MULTILINE)
_SPLIT_OF_BUCKET: tuple[Split, ...] = (
    "train",
    "train",
    "train",
    "train",
    "train",
    "train",
    "validation",
    "validation",
    "test",
    "test",
)


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class TestCase(_Part):
    """One input with its expected output.

    For ``stdin`` both are plain text. For ``call``, ``input`` is a Python literal: the tuple of
    arguments; ``output`` is the literal of the result. A ``script`` replaces both: Python
    statements that call ``candidate`` and assert; see ``troupe_tasks.code.replay``.

    Example: ``TestCase(input="([3, 1],)", output="[1, 3]")``.
    """

    __test__ = False

    input: str = ""
    output: str = ""
    alternatives: tuple[str, ...] = ()
    """Further outputs that are right as well."""
    script: str | None = None


class Checker(_Part):
    """How an output is compared with the expected one."""

    kind: Literal["tokens", "lines", "exact", "float", "unordered", "program"] = "tokens"
    """tokens: words in order, whatever the white space; lines: words of each line; exact: the
    text as it is, or Python equality of values; float: numbers within ``tolerance``; unordered:
    lines or elements in any order; program: ``source`` decides."""
    tolerance: float = Field(default=1e-6, gt=0.0)
    """Absolute or relative difference that ``float`` allows."""
    tuples_as_lists: bool = False
    """A tuple equals a list with the same elements (data sets that store results as JSON)."""
    source: str = ""
    """For ``program``: Python that defines ``check(input, expected, output) -> bool``, where all
    three are text, or values for ``call``. It runs in the sandbox, away from the program."""

    @model_validator(mode="after")
    def _program_has_source(self) -> "Checker":
        if (self.kind == "program") != bool(self.source):
            raise ValueError("source goes with kind 'program' and with no other")
        return self


class ProgramLimits(_Part):
    """What a program may use for one test."""

    cpu_time_s: float = Field(default=2.0, gt=0.0, le=60.0)
    wall_time_s: float = Field(default=6.0, gt=0.0, le=120.0)
    memory_bytes: int = Field(default=256 * 1024 * 1024, ge=16 * 1024 * 1024)


class Problem(_Part):
    """One problem, complete. Hidden tests and references are for the judge alone.

    ``spare_tests`` are good tests outside the hidden ones, for scripted testers.
    ``wrong_programs`` are known to fail a hidden test; a tester is paid for catching them.

    Example: ``Problem(id="add", kind="call", entry_point="add", statement="Add two numbers.",
    hidden_tests=(TestCase(input="(1, 2)", output="3"),))``.
    """

    version: Literal[1] = SCHEMA_VERSION
    id: str = Field(min_length=1, max_length=200)
    kind: Kind
    statement: str = Field(min_length=1)
    entry_point: str = ""
    """Function that ``call`` problems ask for; ``Solution.name`` for a method of a class."""
    starter_code: str = ""
    prelude: str = ""
    """Code that is run before the program: imports or definitions that the statement gives."""
    epilogue: str = ""
    """Code that is run after the program: what adapts it to ``entry_point``."""
    asked: str = ""
    """What to write, in words, when it is not a program or the function ``entry_point``."""
    public_tests: tuple[TestCase, ...] = ()
    hidden_tests: tuple[TestCase, ...]
    spare_tests: tuple[TestCase, ...] = ()
    references: tuple[str, ...] = ()
    wrong_programs: tuple[str, ...] = ()
    checker: Checker = Checker()
    limits: ProgramLimits = ProgramLimits()
    source: str = ""
    difficulty: str = ""
    split: Split | None = None
    """The split that the data set's authors chose; None: by a hash of the statement."""

    @model_validator(mode="after")
    def _is_whole(self) -> "Problem":
        if self.kind == "call" and not self.entry_point:
            raise ValueError("a 'call' problem needs an entry_point")
        if not self.hidden_tests and self.source != REQUEST:
            raise ValueError("a problem needs a hidden test")
        shown = {test.input for test in self.public_tests if test.script is None}
        if any(t.input in shown for t in self.hidden_tests if t.script is None):
            raise ValueError("a hidden test has the input of a public one; keep it in one place")
        return self

    @property
    def digest(self) -> str:
        """Hash of everything in the problem: two processes that agree on it judge alike."""
        text = json.dumps(self.model_dump(mode="json"), sort_keys=True)
        return hashlib.blake2b(text.encode(), digest_size=12).hexdigest()

    @property
    def compared(self) -> str:
        """What a train problem and a held-out one must not share: the statement."""
        return near_verbatim(self.statement)

    @property
    def own_split(self) -> Split:
        """The split of the problem, a function of its statement unless its authors chose one."""
        return self.split or split_of(self.statement)


def request_problem(text: str) -> Problem:
    """What a user asks, without tests of its own.

    The first ``def NAME(`` of ``text`` names the function to write; without one a program is asked
    that reads standard input.
    """
    signature = _SIGNATURE.search(text)
    if signature is None:
        return Problem(id=REQUEST, kind="stdin", statement=text, hidden_tests=(), source=REQUEST)
    return Problem(
        id=REQUEST,
        kind="call",
        statement=text,
        entry_point=signature.group(1),
        hidden_tests=(),
        source=REQUEST,
    )


def statement_key(statement: str) -> str:
    """Equal for statements that differ only in white space, case or punctuation."""
    words = " ".join(re.findall(r"\w+", statement.lower()))
    return hashlib.sha256(words.encode()).hexdigest()


def split_of(statement: str) -> Split:
    """The one split that owns a statement, however often it occurs in the data."""
    return _SPLIT_OF_BUCKET[int(statement_key(statement)[:16], 16) % len(_SPLIT_OF_BUCKET)]


def read_problems(path: Path) -> list[Problem]:
    """All problems in a JSONL file; raises InvalidArgumentError that names file and line."""
    try:
        lines = path.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidArgumentError(
            f"The problem file {path} cannot be read: {error}; make one with `troupe data "
            "prepare`, or leave the parameter 'data' out to use the built-in problems."
        ) from error
    problems = [_parse(line, path, n) for n, line in enumerate(lines, start=1) if line.strip()]
    _refuse_overlap(problems, path)
    return problems


def write_problems(path: Path, problems: Iterable[Problem]) -> None:
    """Write a JSONL file that ``read_problems`` reads."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(line + "\n" for line in to_lines(problems)), "utf-8")


def to_lines(problems: Iterable[Problem]) -> Iterator[str]:
    """One JSON line a problem, without the fields that have their default."""
    for problem in problems:
        document = problem.model_dump(mode="json", exclude_defaults=True)
        yield json.dumps({"version": SCHEMA_VERSION, **document}, ensure_ascii=False)


def _parse(line: str, path: Path, number: int) -> Problem:
    try:
        return Problem.model_validate_json(line)
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        # The name of a field too many is the file's own, and the file may be any file.
        is_extra = first["type"] == "extra_forbidden"
        where = "" if is_extra else "/".join(str(part) for part in first["loc"])
        raise InvalidArgumentError(
            f"{path}, line {number}, is not a problem of schema version {SCHEMA_VERSION}: "
            f"{where or 'line'}: {first['msg']} ({error.error_count()} fault(s) in the line)."
        ) from None


def _refuse_overlap(problems: list[Problem], path: Path) -> None:
    """Ids are unique, and no statement is in two splits."""
    ids: set[str] = set()
    splits: dict[str, Problem] = {}
    for problem in problems:
        if problem.id in ids:
            raise InvalidArgumentError(f"{path} holds two problems with id {problem.id!r}.")
        ids.add(problem.id)
        first = splits.setdefault(statement_key(problem.statement), problem)
        if first.own_split != problem.own_split:
            raise InvalidArgumentError(
                f"{path}: the statement of {problem.id!r} ({problem.own_split}) is also that of "
                f"{first.id!r} ({first.own_split}); take one of them out, or train and test meet."
            )
