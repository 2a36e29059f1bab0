"""What an audit tried, what each player earned, and findings with episodes that show them."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import Any

from troupe.conformance.findings import clipped


@dataclass(frozen=True, slots=True)
class ShownMove:
    """One action of an episode, what it was paid (team reward and weighted terms), if it solved."""

    agent: str
    action: str
    reward: float
    is_success: bool


@dataclass(frozen=True, slots=True)
class ShownEpisode:
    """One episode: the task, the mean reward of its actions, the team's return, every action."""

    task: str
    reward: float
    team_return: float
    is_success: bool
    moves: tuple[ShownMove, ...]


@dataclass(frozen=True, slots=True)
class Earned:
    """What one player earned: an attacker, the random policy or the honest reference.

    ``rewards`` and ``returns`` have one number of each episode: the mean mixed reward of its
    actions, which a job's candidates are compared by, and the team's return. ``best`` is its best
    paid episode.
    """

    name: str
    what: str
    rewards: tuple[float, ...]
    returns: tuple[float, ...]
    success: float
    best: ShownEpisode


@dataclass(frozen=True, slots=True)
class AuditFinding:
    """An attacker that earned more than it may. ``excuse``: the family documents why it may."""

    attacker: str
    problem: str
    episode: ShownEpisode
    excuse: str = ""


@dataclass(frozen=True, slots=True)
class AuditBounds:
    """What no attacker may exceed on average: success, and the honest medians.

    ``reward`` and ``team_return`` are None where there is no honest reference.
    """

    success: float
    reward: float | None = None
    team_return: float | None = None

    def text(self) -> str:
        """``"success <= 25.0%, reward <= 0.980 and return <= 1.000 (the honest medians)"``."""
        text = f"success <= {self.success:.1%}"
        if self.reward is None:
            return f"{text}; no honest reference, so no bound on the reward"
        rest = f"reward <= {self.reward:.3f} and return <= {self.team_return:.3f}"
        return f"{text}, {rest} (the honest medians)"


@dataclass(frozen=True, slots=True)
class AuditReport:
    """One family's audit. ``honest`` is None for a family without a script."""

    family: str
    params: Mapping[str, Any]
    seed: int
    bounds: AuditBounds
    honest: Earned | None
    random: Earned
    attackers: tuple[Earned, ...]
    findings: tuple[AuditFinding, ...]

    @property
    def is_ok(self) -> bool:
        """Whether every finding is excused by the family."""
        return all(finding.excuse for finding in self.findings)

    def document(self) -> dict[str, Any]:
        """The report as JSON values, with whole actions."""
        return {**asdict(self), "is_ok": self.is_ok}

    def text(self) -> str:
        """The report for people: a line per player, best paid attackers first, then findings."""
        players = [self.honest] if self.honest else []
        ranked = sorted(self.attackers, key=lambda e: (-e.success, -fmean(e.rewards)))
        lines = [f"{self.family}: {len(ranked)} attackers, seed {self.seed}"]
        lines += [
            f"bound: {self.bounds.text()}",
            "",
            _row("player", "reward", "return", "best", "success"),
        ]
        lines += [_line(earned) for earned in (*players, self.random, *ranked)]
        for finding in self.findings:
            word = "excused" if finding.excuse else "FINDING"
            lines += ["", f"{word}: {finding.attacker}: {finding.problem}"]
            lines += [f"  reason given: {finding.excuse}"] if finding.excuse else []
            lines += _shown(finding.episode)
        lines += [
            "",
            "verdict: " + ("no attacker is paid" if self.is_ok else "the reward is hackable"),
        ]
        return "\n".join(lines)


def _row(name: str, *numbers: str, what: str = "what it does") -> str:
    return f"{name:18}" + "".join(f"{number:>9}" for number in numbers) + f"  {what}"


def _line(earned: Earned) -> str:
    numbers = (fmean(earned.rewards), fmean(earned.returns), max(earned.rewards))
    shown = [f"{number:.3f}" for number in numbers]
    what = f"{earned.what} ({len(earned.rewards)} episodes)"
    return _row(earned.name, *shown, f"{earned.success:.1%}", what=what)


def _shown(episode: ShownEpisode) -> list[str]:
    solved = "solved" if episode.is_success else "not solved"
    paid = f"reward {episode.reward:.3f}, return {episode.team_return:.3f}"
    lines = [f"  {episode.task}: {paid}, {solved}"]
    lines += [
        f"    {move.agent} ({move.reward:+.3f}): {clipped(move.action)}"
        for move in episode.moves[:8]
    ]
    more = len(episode.moves) - 8
    return [*lines, f"    ... and {more} more"] if more > 0 else lines
