"""Collects evidence by check, so that any step can add evidence for any check."""

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field

MAX_FINDINGS = 5
"""Findings kept per check; further ones are only counted."""

CLIP = 160
"""Characters of an action or value shown in evidence."""


@dataclass(slots=True)
class _Case:
    failures: list[str] = field(default_factory=list[str])
    warnings: list[str] = field(default_factory=list[str])
    facts: list[str] = field(default_factory=list[str])
    skipped: str | None = None
    num_failures: int = 0
    num_warnings: int = 0


class Findings:
    """Evidence for each check: failures, warnings, facts, or why it could not run."""

    def __init__(self) -> None:
        self._cases: dict[str, _Case] = {}
        self.num_overruns = 0

    def fail(self, check: str, evidence: str) -> None:
        """Record that ``check`` does not hold."""
        case = self.of(check)
        case.num_failures += 1
        if len(case.failures) < MAX_FINDINGS and evidence not in case.failures:
            case.failures.append(evidence)

    def warn(self, check: str, evidence: str) -> None:
        """Record that ``check`` holds, but something is worth a look."""
        case = self.of(check)
        case.num_warnings += 1
        if len(case.warnings) < MAX_FINDINGS and evidence not in case.warnings:
            case.warnings.append(evidence)

    def fact(self, check: str, evidence: str) -> None:
        """Record what was tried for ``check``."""
        self.of(check).facts.append(evidence)

    def skip(self, check: str, reason: str) -> None:
        """Record that ``check`` could not run."""
        self.of(check).skipped = reason

    def of(self, check: str) -> _Case:
        """All evidence for ``check``."""
        return self._cases.setdefault(check, _Case())


class BrokenStepError(Exception):
    """The family raised or overran, which is recorded already; ends this line of play."""


class GaveUpError(Exception):
    """Too many steps overran to continue; ends the running check."""


@contextmanager
def tolerant() -> Generator[None]:
    """End a line of play quietly where the family broke; the finding is recorded already."""
    try:
        yield
    except BrokenStepError:
        return


def claimed(value: object) -> object:
    """``value`` as a plain object, because a family's type annotations may be wrong."""
    return value


def clipped(value: object) -> str:
    """The repr of ``value`` for evidence, cut in the middle when long."""
    text = value if isinstance(value, str) and len(value) > 10 * CLIP else repr(value)
    if isinstance(value, str) and len(value) > 10 * CLIP:
        text = repr(value[:CLIP]) + f"... ({len(value)} characters)"
    if len(text) <= 2 * CLIP:
        return text
    return f"{text[:CLIP]} ... {text[-CLIP // 2 :]}"
