"""One instance: a repository with a fault, what is said of it, and the tests that judge it."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from random import Random
from typing import Any

from troupe.tasks.family import Split
from troupe_tasks.code.problem import Checker, Problem, ProgramLimits, TestCase
from troupe_tasks.repair.calls import answer, call_text, drawn_calls
from troupe_tasks.repair.mutations import mutations_of
from troupe_tasks.repair.repository import ENTRY, PACKAGES, imported, package_files

CALLS_EACH = 14
MIN_FAILING, MAX_FAILING = 4, 6
NUM_PASSING = 4
NUM_SHOWN_PASSING = 2

LIMITS = ProgramLimits(cpu_time_s=1.0, wall_time_s=3.0)
"""A call takes milliseconds."""

Test = tuple[str, str, str]
"""The call as text, the arguments of ``run_call`` as a literal, and the right result as one."""


@dataclass(frozen=True, slots=True)
class Instance:
    """``shown`` tests are in the repository, the first one fails; ``failing`` and ``passing`` ones
    are hidden, and say what they do before the repair. ``fault`` is the path, place, wrong and
    right text."""

    package: str
    files: Mapping[str, str]
    shown: tuple[Test, ...]
    failing: tuple[Test, ...]
    passing: tuple[Test, ...]
    issue: str
    kind: str
    fault: tuple[str, int, str, str]

    def problem(self) -> Problem:
        """The tests in the form that the code family's grader takes."""
        return Problem(
            id=f"repair/{self.package}",
            kind="call",
            statement=self.issue,
            entry_point=ENTRY,
            public_tests=tuple(map(_case, self.shown)),
            hidden_tests=tuple(map(_case, (*self.failing, *self.passing))),
            checker=Checker(kind="exact"),
            limits=LIMITS,
            split="train",
        )


def _case(test: Test) -> TestCase:
    return TestCase(input=test[1], output=test[2])


def encode_instance(instance: Instance) -> bytes:
    """A task payload."""
    return json.dumps(asdict(instance), separators=(",", ":")).encode()


def instance_of(fields: Mapping[str, Any]) -> Instance:
    """The instance that ``encode_instance`` wrote."""
    parts: dict[str, Any] = dict(fields)
    for name in ("shown", "failing", "passing"):
        parts[name] = tuple((test[0], test[1], test[2]) for test in parts[name])
    path, start, wrong, right = parts["fault"]
    parts["fault"] = (path, start, wrong, right)
    return Instance(**parts)


def drawn(rng: Random, split: Split) -> Instance | None:
    """One fault in a package of ``split``, or None when too few calls notice it."""
    package = rng.choice(PACKAGES[split])
    files = package_files(package)
    path = rng.choice([path for path in files if not path.endswith("__init__.py")])
    mutations = mutations_of(files[path])
    kind = rng.choice(sorted({mutation.kind for mutation in mutations}))
    mutation = rng.choice([mutation for mutation in mutations if mutation.kind == kind])
    broken = {**files, path: mutation.applied(files[path])}
    right, wrong = imported(files), imported(broken)
    failing: list[tuple[Test, str]] = []
    passing: list[Test] = []
    for name, args in drawn_calls(rng, files, CALLS_EACH):
        is_answered, value = answer(right, name, args)
        if not is_answered:
            continue
        got = answer(wrong, name, args)
        test = (call_text(name, args), repr((name, *args)), repr(value))
        if got[0] and got[1] == value:
            passing.append(test)
        else:
            failing.append((test, f"gives {got[1]!r}" if got[0] else "raises an error"))
    if len(failing) <= MIN_FAILING or len(passing) < NUM_PASSING + NUM_SHOWN_PASSING:
        return None
    rng.shuffle(failing)
    rng.shuffle(passing)
    (first, told), hidden = failing[0], [test for test, _ in failing[1 : MAX_FAILING + 1]]
    issue = f"{first[0]} {told}; it should give {first[2]}."
    shown = (first, *passing[:NUM_SHOWN_PASSING])
    tests = "\n".join(f"assert {call} == {value}" for call, _, value in shown)
    modules = sorted({call.partition("(")[0].rpartition(".")[0] for call, _, _ in shown})
    imports = "".join(f"import {name}\n" for name in modules)
    broken[f"tests/test_{package}.py"] = f"{imports}\n{tests}\n"
    kept = tuple(passing[NUM_SHOWN_PASSING : NUM_SHOWN_PASSING + NUM_PASSING])
    fault = (path, mutation.start, mutation.new, mutation.old)
    return Instance(package, broken, shown, tuple(hidden), kept, issue, mutation.kind, fault)
