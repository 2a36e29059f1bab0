"""The kit's report: one named outcome per promise, with evidence and advice."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

Outcome = Literal["passed", "warned", "failed", "skipped"]


@dataclass(frozen=True, slots=True)
class Check:
    """The result of one check.

    ``evidence`` lists what was tried or found, ``advice`` what to do about a failure or a warning
    (empty otherwise). ``seconds`` is its duration.

    Example: ``Check("step_pure", "passed", ("48 steps, each judged twice",), "", 0.02)``.
    """

    name: str
    outcome: Outcome
    evidence: tuple[str, ...]
    advice: str
    seconds: float


@dataclass(frozen=True, slots=True)
class CheckReport:
    """All checks of one family, in the order in which they ran."""

    family: str
    params: Mapping[str, Any]
    checks: tuple[Check, ...]

    @property
    def is_ok(self) -> bool:
        """Whether no check failed; warnings are allowed."""
        return not self.failed

    @property
    def failed(self) -> tuple[str, ...]:
        """Names of the checks that failed."""
        return self.named("failed")

    def named(self, outcome: Outcome) -> tuple[str, ...]:
        """Names of the checks with this outcome."""
        return tuple(check.name for check in self.checks if check.outcome == outcome)

    def __getitem__(self, name: str) -> Check:
        """The check called ``name``; raises KeyError."""
        for check in self.checks:
            if check.name == name:
                return check
        raise KeyError(name)

    def document(self) -> dict[str, Any]:
        """The report as JSON values."""
        return {
            "family": self.family,
            "params": dict(self.params),
            "is_ok": self.is_ok,
            "checks": [asdict(check) for check in self.checks],
        }

    def text(self) -> str:
        """The report for people: one line per check, with evidence and advice below."""
        lines: list[str] = []
        for check in self.checks:
            first, *others = check.evidence or ("",)
            lines.append(f"{check.outcome:8} {check.name:22} {first}")
            lines += [f"{'':31} {line}" for line in others]
            if check.advice:
                lines.append(f"{'':31} -> {check.advice}")
        return "\n".join(lines)
