"""The prompts of the discovery task, and how its answers are read."""

import re
from collections.abc import Mapping, Sequence
from typing import Literal

from troupe.tasks.family import Message, Observation
from troupe.tasks.quoting import shown
from troupe_tasks.discovery import compact
from troupe_tasks.discovery.state import DiscoveryState, Tried

EXPERIMENTER, THEORIST = "experimenter", "theorist"
AGENTS = (EXPERIMENTER, THEORIST)
Ranges = Mapping[str, tuple[float, float]]
Style = Literal["compact", "verbose"]
MAX_READ_CHARS = 8_000
MAX_LINES = 60
MAX_POINTS = 3
"""Points of one answer."""

_NUMBER = r"-?[0-9]{1,30}(?:\.[0-9]{1,30})?(?:[eE][+-]?[0-9]{1,3})?"
_ASSIGNED = re.compile(rf"([a-z][a-z0-9]{{0,7}})[ ]{{0,2}}[=:][ ]{{0,2}}({_NUMBER})")
_FORMULA = re.compile(r"[\s*_`#>+-]*formula[\s*_`:]*", re.IGNORECASE)
"""What names the formula, in marks of Markdown or not: ``- **Formula:**``."""


def read_points(action: str, ranges: Ranges) -> list[dict[str, float]]:
    """The last three lines that set every quantity, clipped to the measured range."""
    points: list[dict[str, float]] = []
    for line in action[-MAX_READ_CHARS:].splitlines()[-MAX_LINES:]:
        found = {name: float(number) for name, number in _ASSIGNED.findall(line[:400])}
        if all(name in found for name in ranges):
            points.append({n: min(high, max(low, found[n])) for n, (low, high) in ranges.items()})
    return points[-MAX_POINTS:]


def read_formula(action: str) -> str:
    """What follows the last ``formula:`` or ``=`` of the last line that has text."""
    lines = [line.strip() for line in action[-MAX_READ_CHARS:].splitlines() if line.strip()]
    marked = [line[mark.end() :] for line in lines if (mark := _FORMULA.match(line))]
    line = ([text for text in marked if text] or lines or [""])[-1]
    return line.rpartition("=")[2].lstrip(" `*$").rstrip(" `*.$")


def observation(
    ranges: Ranges,
    state: DiscoveryState,
    agent: str,
    style: Style,
    num_left: int,
    *,
    theorist_measures: bool,
    about: str,
) -> Observation:
    """The prompt of ``agent``."""
    names = tuple(ranges)
    if style == "compact":
        return (Message("user", compact.prompt(names, state, agent, num_left)),)
    rules = _rules(ranges, about, agent, theorist_measures)
    readings = [
        f"{_point(names, point)} -> {measured:g}" for point, measured in state.readings
    ] or ["none"]
    parts = [f"Readings, {num_left} left:\n" + "\n".join(readings)]
    if state.tried:
        parts.append("Formulas so far:\n" + "\n".join(_tried(tried) for tried in state.tried))
    return Message("system", rules), Message("user", "\n\n".join(parts))


def points_answer(points: Sequence[Mapping[str, float]]) -> str:
    """The text that ``read_points`` reads."""
    return "\n".join(" ".join(f"{n}={v:g}" for n, v in point.items()) for point in points)


def formula_answer(formula: str) -> str:
    """The text that ``read_formula`` reads."""
    return f"formula: {formula}"


def _point(names: Sequence[str], point: Sequence[float]) -> str:
    return " ".join(f"{name}={v:g}" for name, v in zip(names, point, strict=True))


def _tried(tried: Tried) -> str:
    return (
        f"{shown(tried.formula, max_lines=1)}: fits the readings to {tried.own:.2f}, hidden points "
        "to "
        f"{tried.tenths / 10:.1f} (1 is exact)"
    )


def _rules(ranges: Ranges, about: str, agent: str, theorist_measures: bool) -> str:
    names = tuple(ranges)
    listed = ", ".join(f"{n} ({low:g} to {high:g})" for n, (low, high) in ranges.items())
    world = (
        f"A world has one law: a quantity q is a formula of {listed}. Each of them can be set "
        "within its "
        "range; a reading of q may have noise, the same for the same point. "
    )
    world += f"{about}. " if about else ""
    measure = " ".join(f"{name}=2" for name in names)
    if agent == EXPERIMENTER:
        return world + (
            "You are the experimenter. Choose points that separate the formulas that are still "
            f"possible. Think briefly, then end with 1 to 3 lines, a point each, for "
            f"example:\n{measure}"
        )
    rules = world + (
        "You are the theorist. Name the law: its form with exponents in quarters, and its numbers. "
        "It is "
        "judged also beyond the measured range. Allowed: numbers, the quantities, + - * / **, sqrt "
        "exp log sin "
        f"cos abs. Think briefly, then end with one line, for example:\nformula: 2*{names[0]}**0.5"
    )
    if theorist_measures:
        rules += (
            f"\nYou may first write up to 3 lines of points to be measured, for example:\n{measure}"
        )
    return rules
