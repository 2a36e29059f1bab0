"""Reports a job for people: its rounds, each policy over all rounds, and conversations.

Owns ``report.md`` and ``transcripts/`` of a run folder, made from metrics.jsonl and episodes.jsonl
by ``python -m troupe.evaluation.run_report RUN_FOLDER``. Reads line by line, so a run of any length
fits in memory; running it again gives the same files.
"""

import json
import math
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from troupe.durable import replace_file
from troupe.episodes.lines import Line
from troupe.evaluation.documents import summary_of
from troupe.evaluation.scores import FAILURE_KINDS, Flawless, failure_of, fault_kinds
from troupe.evaluation.tables import table
from troupe.evaluation.transcripts import transcript

_MOST_ROUNDS = 40
"""Most training steps in the table; of more, it shows evenly spaced ones."""
_EPISODES_A_ROUND = 20
"""Conversations per shown evaluation."""


@dataclass(slots=True)
class PolicyTally:
    """One policy over all rounds of one kind; sums over candidates, executed or not."""

    num_candidates: int = 0
    num_executed: int = 0
    reward: float = 0.0
    versions: set[int] = field(default_factory=set[int])
    terms: Counter[str] = field(default_factory=Counter[str])
    faults: Counter[str] = field(default_factory=Counter[str])


@dataclass(slots=True)
class RoundTally:
    """One evaluation: outcomes by kind, and the ids of episodes worth reading."""

    outcomes: Counter[str] = field(default_factory=Counter[str])
    failed: list[str] = field(default_factory=list[str])
    solved: list[str] = field(default_factory=list[str])

    def shown(self) -> set[str]:
        """Ids of the episodes whose conversations are written: failed ones first."""
        return set([*self.failed, *self.solved][:_EPISODES_A_ROUND])


def write_run_report(run_dir: Path) -> str:
    """Write ``report.md`` and ``transcripts/`` of a run folder; return the report's text."""
    episodes = run_dir / "episodes.jsonl"
    flawless = _flawless(episodes)
    policies: defaultdict[tuple[str, str], PolicyTally] = defaultdict(PolicyTally)
    rounds: defaultdict[str, RoundTally] = defaultdict(RoundTally)
    for line in whole_lines(episodes):
        _count(line, policies, rounds, flawless)
    _write_transcripts(run_dir, episodes, rounds)
    metrics = list(whole_lines(run_dir / "metrics.jsonl"))
    text = "\n\n".join(
        [
            f"# {run_dir.name}",
            *_lost(run_dir),
            "## Rounds\n\n" + _rounds(metrics),
            *_suspects(metrics),
            "## Policies over all rounds\n\n" + _policies(policies),
            "## Evaluations by outcome\n\n" + _outcomes(rounds),
            "Conversations: transcripts/ shows some of the first and the last evaluation; "
            "episodes.jsonl holds every recorded one.",
        ]
    )
    replace_file(run_dir / "report.md", text + "\n")
    return text + "\n"


def _lost(run_dir: Path) -> list[str]:
    """What the job's records lack, as a section; none where they are whole."""
    losses = summary_of(run_dir).get("records_lost")
    if not losses:
        return []
    rows = [[loss["file"], loss["part"], loss["loss"]] for loss in losses]
    return ["## Lost records\n\n" + table(["file", "part", "loss"], rows)]


def _flawless(path: Path) -> Flawless:
    """The highest reward that any candidate got for its form; less than that is a fault."""
    best: defaultdict[str, dict[str, float]] = defaultdict(dict)
    for line in whole_lines(path):
        for group, candidate in _candidates(line):
            terms = best[group["agent"]]
            for name, value in candidate["local_rewards"].items():
                terms[name] = max(value, terms.get(name, value))
    return best


def _count(
    line: Line,
    policies: Mapping[tuple[str, str], PolicyTally],
    rounds: Mapping[str, RoundTally],
    flawless: Flawless,
) -> None:
    for group, candidate in _candidates(line):
        tally = policies[group["policy"], line["kind"]]
        tally.num_candidates += 1
        tally.num_executed += bool(candidate["is_chosen"])
        tally.reward += candidate["reward"]
        tally.versions.add(group["policy_version"])
        for name, value in candidate["local_rewards"].items():
            tally.terms[name] += value
        tally.faults.update(fault_kinds(group["agent"], candidate, flawless))
    if line["kind"] == "eval":
        tally = rounds[line["round_id"]]
        is_dropped = "dropped_reason" in line
        kind = "error" if is_dropped else failure_of(line, flawless) or "solved"
        tally.outcomes[kind] += 1
        episode_ids = tally.solved if kind == "solved" else tally.failed
        if len(episode_ids) < _EPISODES_A_ROUND:
            episode_ids.append(line["episode_id"])


def _write_transcripts(run_dir: Path, episodes: Path, rounds: Mapping[str, RoundTally]) -> None:
    """The first and the last evaluation, one file each."""
    folder = run_dir / "transcripts"
    for round_id in sorted(rounds)[:1] + sorted(rounds)[1:][-1:]:
        shown = rounds[round_id].shown()
        folder.mkdir(exist_ok=True)
        parts = [
            transcript(line)
            for line in whole_lines(episodes, round_id.encode())
            if line["round_id"] == round_id and line["episode_id"] in shown
        ]
        head = f"# {round_id}\n\n{len(parts)} episodes, failed ones first chosen.\n\n"
        replace_file(folder / f"{round_id}.md", head + "\n".join(parts))


def _rounds(metrics: list[Line]) -> str:
    train = [line for line in metrics if line["kind"] == "train"]
    stride = max(1, -(-len(train) // _MOST_ROUNDS))
    steps = {line["step"] for line in train[::stride]} | {line["step"] for line in train[-1:]}
    rows = [
        [
            line["kind"],
            str(line["step"]),
            _percent(line.get("success", line.get("success_rate"))),
            "-" if line["kind"] == "eval" else _number(line.get("reward_mean")),
            _number(episode_reward(line)) if line["kind"] == "eval" else "-",
            _number(line.get("return_mean")),
            _number(line.get("turns_mean")),
            str(line.get("num_tokens", "-")),
            str(line.get("num_dropped", 0)),
            _number(line.get("wall_s")),
        ]
        for line in metrics
        if line["kind"] == "eval" or line["step"] in steps
    ]
    rewards = ["reward of a candidate", "reward of an episode"]
    head = ["round", "step", "success", *rewards, "return", "turns", "tokens", "dropped", "s"]
    return table(head, rows)


def _suspects(metrics: list[Line]) -> list[str]:
    """What to read before the curve is trusted; nothing where no round is suspect."""
    rounds = [f"{line['kind']} {line['step']}" for line in metrics if line.get("is_suspect")]
    if not rounds:
        return []
    return [
        "## Suspect reward\n\nThe reward rose while success, answer diversity or the strict judge "
        f"fell (events `reward.suspect`): {', '.join(rounds)}. Read their episodes before you "
        "trust the curve."
    ]


def _policies(policies: Mapping[tuple[str, str], PolicyTally]) -> str:
    head = ["policy", "rounds", "versions", "candidates", "executed", "reward", "terms", "faults"]
    rows: list[list[str]] = []
    for (policy, kind), tally in sorted(policies.items()):
        n = tally.num_candidates
        terms = ", ".join(f"{name} {total / n:.3f}" for name, total in sorted(tally.terms.items()))
        faults = ", ".join(f"{name} {count / n:.1%}" for name, count in tally.faults.most_common())
        rows.append(
            [
                policy,
                kind,
                f"{min(tally.versions)} to {max(tally.versions)}",
                str(n),
                str(tally.num_executed),
                f"{tally.reward / n:.3f}",
                terms or "-",
                faults or "-",
            ]
        )
    return table(head, rows)


def _outcomes(rounds: Mapping[str, RoundTally]) -> str:
    kinds = ["solved", *FAILURE_KINDS]
    rows = [
        [name, *(str(rounds[name].outcomes[kind]) for kind in kinds)] for name in sorted(rounds)
    ]
    return table(["evaluation", *kinds], rows)


def _candidates(line: Line) -> Iterator[tuple[Mapping[str, Any], Mapping[str, Any]]]:
    for group in line["groups"]:
        for candidate in group["candidates"]:
            yield group, candidate


def whole_lines(path: Path, part: bytes = b"") -> Iterator[Line]:
    """Every whole line of a JSON Lines file that contains ``part``.

    A torn last line belongs to a job that is still writing. A reward that is null, which earlier
    versions wrote for one that is not finite, is NaN.
    """
    if not path.is_file():
        return
    with path.open("rb") as file:
        for text in file:
            if part in text and text.endswith(b"\n"):
                yield _with_numbers(json.loads(text))


def _with_numbers(line: dict[str, Any]) -> Line:
    for group in line.get("groups") or []:
        for candidate in group["candidates"]:
            terms = candidate.get("local_rewards", {})
            for paid, names in ((candidate, ("reward", "team_reward")), (terms, list(terms))):
                paid.update({name: math.nan for name in names if paid.get(name, 0.0) is None})
    return line


def episode_reward(evaluation: Mapping[str, Any]) -> float | None:
    """What an episode of an evaluation brought an agent on average, of a line of metrics.jsonl.

    None in the lines of 0.1.0, whose ``reward_mean`` is over acts: they have no reward by agent.
    """
    return evaluation.get("reward_mean") if evaluation.get("reward_by_agent") else None


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.1f} %"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


if __name__ == "__main__":
    write_run_report(Path(sys.argv[1]))
