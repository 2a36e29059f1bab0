"""Part: the rows of PettingLLMs' table of Qwen3-1.7B, each beside the paper's figures.

Five tasks, and for each three jobs: a single agent, a team that shares one policy, and a team with
a policy for each role. A job's evaluation before the first step is an untrained row of the table
(single agent; MAS), and that after the last a trained one (GRPO; AT-GRPO shared and per role).
Jobs are those of the part ``team``: each may be made in several sittings, and ended ones are not
made again. The games are drawn as in the paper (Sudoku 4x4, Sokoban 6x6, Plan-Path 10x10); of code
and maths Troupe has problems of its own, so the paper's sets stand beside them without a goal.

Source: PettingLLMs (arXiv 2510.11062), table 1: accuracy in percent, without thinking; K = 4, 4
turns. Its learning rate and number of steps were not at hand; those here are the examples'.
"""

import argparse
import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.gpu_suite.team import ROOT, example_document, tiny_base, tiny_document
from benchmarks.gpu_suite.team import measure as train_and_read
from benchmarks.report import goal

LEAST_S = 240.0
"""A job is not begun, nor gone on with, in less time."""
METHODS = {
    "single": ("Single agent", "SA + GRPO"),
    "shared": ("MAS", "MAS + AT-GRPO shared"),
    "each": ("MAS", "MAS + AT-GRPO per role"),
}
"""Kind of job -> names of the table's rows, untrained and trained."""


@dataclass(frozen=True)
class Task:
    """A column of the table. ``paper``: its rows in the order of ``ROWS``, by set; ``is_same``: the
    tasks are drawn as the paper's are."""

    example: str
    paper: Mapping[str, tuple[float, ...]]
    is_same: bool


ROWS = ("Single agent", "SA + GRPO", "MAS", "MAS + AT-GRPO shared", "MAS + AT-GRPO per role")
TASKS = (
    Task("plan_path_10x10", {"Plan-Path": (5.0, 11.0, 10.0, 96.0, 97.0)}, is_same=True),
    Task("sudoku", {"Sudoku": (7.0, 29.0, 69.0, 99.0, 99.0)}, is_same=True),
    Task("sokoban", {"Sokoban": (0.0, 3.0, 0.0, 10.0, 11.5)}, is_same=True),
    Task(
        "math",
        {
            "AIME24": (13.4, 10.0, 13.3, 16.7, 13.3),
            "AIME25": (9.8, 6.7, 13.0, 16.7, 18.3),
            "OlympiadBench": (22.2, 23.8, 35.9, 39.6, 35.2),
        },
        is_same=False,
    ),
    Task(
        "code",
        {
            "LiveCodeBench": (11.6, 18.8, 19.0, 20.9, 24.0),
            "APPS": (16.2, 17.0, 16.6, 17.6, 18.6),
            "CodeContests": (3.6, 3.0, 3.6, 4.8, 7.8),
        },
        is_same=False,
    ),
)
SETTINGS: dict[str, Any] = {
    "sampling": {"temperature": 1.0, "max_new_tokens": 2048},
    "batch": {"tokens_per_row": 8192},
}
"""Of every row: the examples of the games are for models of a million parameters."""
OPTIMIZER = {"learning_rate": 1.0e-5, "schedule": "linear", "warmup_steps": 5}
GROUP_SIZE, TURNS, TASKS_A_STEP = 4, 4, 32


@dataclass(frozen=True)
class Cell:
    """One job of the table."""

    task: Task
    kind: str

    @property
    def name(self) -> str:
        """Of the job, and of its row."""
        return f"paper-{self.task.example}-{self.kind}".replace("_", "-")

    def document(self, args: argparse.Namespace, folder: Path) -> dict[str, Any]:
        """The spec."""
        if args.quick:
            return by_policies(tiny_document(tiny_base(folder), args.tasks), self.kind) | {
                "name": self.name
            }
        example = (
            f"{self.task.example}_single_agent" if self.kind == "single" else self.task.example
        )
        made = by_policies(example_document(example, args), self.kind)
        for policy in made["policies"].values():
            policy["optimizer"] = OPTIMIZER
        turns = 1 if made["workflow"].get("max_turns") == 1 else TURNS
        return made | SETTINGS | {
            "name": self.name,
            "tasks_per_step": TASKS_A_STEP,
            "workflow": made["workflow"] | {"max_turns": turns},
            "algorithm": {
                "kind": "grpo" if self.kind == "single" else "at_grpo",
                "group_size": GROUP_SIZE,
            },
        }  # fmt: skip

    def paper(self, *, trained: bool) -> dict[str, float]:
        """The paper's figures of one row, by set."""
        place = ROWS.index(METHODS[self.kind][trained])
        return {name: figures[place] for name, figures in self.task.paper.items()}


def by_policies(document: dict[str, Any], kind: str) -> dict[str, Any]:
    """``document`` with one policy for all agents, or one for each."""
    policy = next(iter(document["policies"].values()))
    agents: dict[str, Any] = document["agents"]
    names = {agent: agent if kind == "each" else "shared" for agent in agents}
    return document | {
        "agents": {agent: body | {"policy": names[agent]} for agent, body in agents.items()},
        "policies": {name: dict(policy) for name in names.values()},
    }


def cells(*, quick: bool) -> Iterator[Cell]:
    """Jobs in order: what tells most of what the paper claims comes first."""
    if quick:
        yield Cell(TASKS[0], "each")
        return
    for kind in ("shared", "single", "each"):
        for task in TASKS:
            yield Cell(task, kind)


def row_of(cell: Cell, result: dict[str, Any], *, quick: bool) -> dict[str, Any]:
    """What a job's evaluations were, beside the paper's; a quick job's are of a smaller task."""
    rows = result.get("rows", [])
    found: dict[str, Any] = {"cell": cell.name, "run": result.get("run")}
    for trained, row in zip((False, True), (rows[0], rows[-1]) if rows else (), strict=False):
        if trained and (len(rows) < 2 or "unfinished" in result):
            continue
        found[METHODS[cell.kind][trained]] = {
            "success": row["success"],
            "tasks": row["tasks"],
            "step": row["step"],
            **({} if quick else {"paper": cell.paper(trained=trained)}),
        }
    if why := result.get("unfinished") or result.get("skipped"):
        found["unfinished"] = why
    return found


def measure(args: argparse.Namespace) -> dict[str, Any]:
    """Cells in turn while there is time; not those that were ended before."""
    if not (args.model or args.quick):
        return {"skipped": "give --model: a folder or hub id of Qwen3-1.7B", "goals": []}
    ends = time.monotonic() + args.seconds
    done = {row["cell"]: row for row in args.before if "unfinished" not in row}
    rows: list[dict[str, Any]] = []
    left_out: list[str] = []
    for cell in cells(quick=args.quick):
        if cell.name in done:
            rows.append(done[cell.name])
            continue
        left_s = ends - time.monotonic()
        if left_s < LEAST_S:
            left_out.append(cell.name)
            continue
        folder = args.folder / cell.name
        document = cell.document(args, args.folder)
        told = argparse.Namespace(**vars(args) | {"seconds": left_s, "folder": folder})
        try:
            rows.append(row_of(cell, train_and_read(told, document), quick=args.quick))
        except (SystemExit, OSError) as error:
            rows.append({"cell": cell.name, "unfinished": str(error)[:300]})
        print(json.dumps(rows[-1]), flush=True)
        if "unfinished" in rows[-1]:
            left_out.append(cell.name)
    unfinished = {"unfinished": f"not ended: {', '.join(left_out)}"} if left_out else {}
    return {"rows": rows, "goals": goals_of(rows, quick=args.quick), **unfinished}


def goals_of(rows: list[dict[str, Any]], *, quick: bool) -> list[dict[str, Any]]:
    """Trained teams on the games: at least the paper's accuracy; no goal of a quick run's."""
    if quick:
        ended = sum("unfinished" not in row for row in rows)
        return [goal("cells that ended", ended, len(rows), ended == len(rows))]
    goals: list[dict[str, Any]] = []
    named = {cell.name: cell for cell in cells(quick=False)}
    for row in rows:
        cell = named[row["cell"]]
        trained = METHODS[cell.kind][True]
        if cell.task.is_same and cell.kind != "single" and trained in row:
            percent = round(100 * row[trained]["success"][0], 1)
            [wanted] = cell.paper(trained=True).values()
            goals.append(goal(f"{row['cell']}, success %", percent, wanted, percent >= wanted))
    return goals


def main() -> None:
    """Read the options and print the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--model", default="")
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--tasks", type=int, default=200, help="held-out tasks")
    parser.add_argument("--seconds", type=float, default=3600.0)
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "gpu_suite" / "paper")
    parser.add_argument("--before", type=json.loads, default=[], help="rows of an earlier call")
    parser.add_argument("--anew", action="store_true", help="do not go on with runs that are there")
    parser.add_argument("--quick", action="store_true")
    print(json.dumps(measure(parser.parse_args())))


if __name__ == "__main__":
    main()
