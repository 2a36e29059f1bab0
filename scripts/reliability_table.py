"""Write the tables of docs/reliability.md from recorded runs of the chaos suite.

``python scripts/reliability_table.py benchmarks/results/chaos.jsonl docs/reliability.md``: each
line of the recording is one run of one case, as ``tests/chaos`` writes it. What stands between the
markers of the page is replaced; the words around them are written by hand.

With ``--add PART COMMIT`` the runs of a part of the matrix (``make chaos PYTEST_ARGS=...`` leaves
them in build/chaos/chaos.jsonl) join the recording first: all of them, also those that failed,
beside what it has of the same cases. The page says that they were recorded by themselves.
"""

import json
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import quantiles
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
BEGIN, END = "<!-- generated: begin -->", "<!-- generated: end -->"
GOALS_S = {"router": 10, "env": 10, "sandbox": 10, "redis": 10, "rollout": 30, "trainer": 30}
"""What a role may take to serve again on a quiet machine: stateless services, trainer, engine."""

Run = Mapping[str, Any]


def main(recorded: Path, page: Path) -> None:
    """Replace the generated part of ``page``."""
    runs = [json.loads(line) for line in recorded.read_text().splitlines()]
    text = page.read_text()
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    page.write_text(f"{before}{BEGIN}\n{tables(runs)}\n{END}{after}")


def add(recorded: Path, part: Path, commit: str) -> None:
    """Append the runs of ``part``, which were made of ``commit``, to the recording."""
    added = [json.loads(line) for line in part.read_text().splitlines()]
    with recorded.open("a") as file:
        file.writelines(f"{json.dumps({**run, 'added_of': commit})}\n" for run in added)


def tables(runs: Sequence[Run]) -> str:
    """The summary by role, every case, and what is missing."""
    parts = [_totals(runs), _by_role(runs), _by_case(runs), _missing(runs)]
    return "\n\n".join(part for part in parts if part)


def _totals(runs: Sequence[Run]) -> str:
    failed = [run for run in runs if run["faults"]]
    loads = [run["load"] for run in runs if run.get("load")]
    lost, doubled = (sum(run[name] for run in runs) for name in ("num_lost", "num_duplicated"))
    ended = [run for run in runs if run.get("ended")]
    resumed = [run for run in ended if run["same_weights"]]
    same = sum(run["same_weights"] for run in runs)
    words = (
        f"{len(runs)} runs of {len({run['case'] for run in runs})} of the {len(_cases())} cases, "
        f"{len(failed)} failed; "
        f"groups lost {lost}, groups trained twice {doubled}; final weights equal to the last bit "
        f"in {same} of {len(runs) - len(ended) + len(resumed)}."
    )
    if ended:
        words += f" {len(ended)} ended with a reason, as they may after Redis lost writes"
        words += f"; {len(resumed)} of them were resumed and ended equal." if resumed else "."
    for commit in sorted({run["added_of"] for run in runs if run.get("added_of")}):
        by_itself = [run for run in runs if run.get("added_of") == commit]
        words += (
            f" {len(by_itself)} of the runs, of {len({run['case'] for run in by_itself})} cases, "
            f"were recorded by themselves, of commit {commit}."
        )
    if loads:
        words += f" Load of the machine (2 cores) meanwhile, p50 / p95: {_spread(loads, 0)}."
    return words


def _by_role(runs: Sequence[Run]) -> str:
    grouped = _group(runs, "victim", "how")
    lines = [
        "| hit | how | runs | serves again after, p50 / p95 s | the job goes on after, p50 / p95 s "
        "| goal s |",
        "|---|---|---|---|---|---|",
    ]
    for (victim, how), trials in sorted(grouped.items()):
        goal = GOALS_S[victim] if how == "kill" else ""
        lines.append(
            f"| {victim} | {how} | {len(trials)} | {_spread(_times(trials, 'serving_s'))} "
            f"| {_spread(_times(trials, 'progress_s'))} | {goal} |"
        )
    return "\n".join(lines)


def _by_case(runs: Sequence[Run]) -> str:
    lines = [
        "| moment | hit | how | runs | serves again, p50 / p95 s | job goes on, p50 / p95 s | lost "
        "| twice | weights | result |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for (phase, _, how), trials in _group(runs, "phase", "case", "how").items():
        hit = trials[0]["case"].removeprefix(f"{how} ".replace(" ", "-")).split("-")[0]
        lost, doubled = (
            sum(run[name] for run in trials) for name in ("num_lost", "num_duplicated")
        )
        # A run that rested where it ended, and was not resumed, has no final weights.
        compared = [
            run["same_weights"] for run in trials if run["same_weights"] or not run.get("ended")
        ]
        same = ("equal" if all(compared) else "**differ**") if compared else "-"
        ended = sorted({run["ended"] for run in trials if run.get("ended")})
        faults = sorted({fault for run in trials for fault in run["faults"]})
        lines.append(
            f"| {phase} | {hit} | {how} | {len(trials)} | {_spread(_times(trials, 'serving_s'))} "
            f"| {_spread(_times(trials, 'progress_s'))} | {lost} | {doubled} | {same} "
            f"| {'; '.join(faults or ended) or 'ok'} |"
        )
    return "\n".join(lines)


def _missing(runs: Sequence[Run]) -> str:
    """Cases of the matrix that the recording lacks."""
    done = {run["case"] for run in runs}
    left = [name for name in _cases() if name not in done]
    return f"Not run in this recording: {', '.join(f'`{name}`' for name in left)}." if left else ""


def _cases() -> list[str]:
    """The names of all cases."""
    sys.path.insert(0, str(ROOT / "tests" / "chaos"))
    from chaos_cases import ALL

    return [case.id for case in ALL]


def _group(runs: Iterable[Run], *names: str) -> dict[tuple[str, ...], list[Run]]:
    grouped: defaultdict[tuple[str, ...], list[Run]] = defaultdict(list)
    for run in runs:
        grouped[tuple(run[name] for name in names)].append(run)
    return dict(grouped)


def _times(runs: Iterable[Run], name: str) -> list[float]:
    return [run[name] for run in runs if run[name] is not None]


def _spread(values: Sequence[float], digits: int = 1) -> str:
    """Median and 95th percentile; one number of a single run; a dash of none."""
    if not values:
        return "-"
    if len(values) == 1:
        return f"{values[0]:.{digits}f}"
    points = quantiles(values, n=20, method="inclusive")
    return f"{points[9]:.{digits}f} / {points[18]:.{digits}f}"


if __name__ == "__main__":
    if sys.argv[3:4] == ["--add"]:
        add(Path(sys.argv[1]), Path(sys.argv[4]), sys.argv[5])
    main(Path(sys.argv[1]), Path(sys.argv[2]))
