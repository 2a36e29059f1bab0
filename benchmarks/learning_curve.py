"""Held-out success over generated tokens: AT-GRPO beside its rivals, and policy levels L0 to L3.

Run: ``python -m benchmarks.learning_curve [--quick]``. Every arm trains the same base model on the
same small tasks through the whole local platform until it has sampled the same budget of tokens;
seeds give intervals. A cell is one task, arm and seed; a finished one is kept under ``--work`` with
its spec and never repeated, so the command may be stopped, called again, and run in pieces
(``--arms``, ``--seeds``, ``--cells``). Table and plot show what is there and name what is missing;
``--report`` only makes them. The last line is one JSON object; exits 0 whatever the curves show.
"""

import argparse
import json
import math
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from benchmarks.learning_arms import (
    ARMS,
    QUICK_MODEL,
    SMALL,
    TASKS,
    Task,
    small_model,
    spec_of,
)
from benchmarks.learning_report import write_report
from benchmarks.report import clean_up_on_sigterm, commit, goal, machine

RESULTS = Path(__file__).parent / "results"
END_S = 900.0
"""For a run that was told to end: it ends its processes one after another."""
T95 = {1: math.inf, 2: 12.706, 3: 4.303, 4: 3.182, 5: 2.776}
"""Student's t of a 95 % interval, by number of seeds."""
RIVALS = ("grpo_single", "mas_grpo")


@dataclass(frozen=True)
class Cell:
    """One run. Example: ``str(Cell("plan_path", "at_grpo", 0)) == "plan_path:at_grpo:0"``."""

    task: str
    arm: str
    seed: int

    def __str__(self) -> str:
        return f"{self.task}:{self.arm}:{self.seed}"


class RunFailed(Exception):  # noqa: N818 (one cell's, not the program's)
    """A run ended before its budget."""


def make_model(task: Task, folder: Path, flags: Mapping[str, Any]) -> Path:
    """The base model that all arms begin with; made once."""
    path = folder / "base"
    if not (path / "manifest.json").is_file():
        command = [sys.executable, "-m", "troupe_trainer.tiny_model", "--task", task.family]
        command += ["--size", str(task.size), "--params", json.dumps(task.params)]
        for flag, value in flags.items():
            command += [flag, json.dumps(value)]
        subprocess.run([*command, "--out", str(path)], check=True, stdout=sys.stderr)
    return path


def kept_curve(
    document: Mapping[str, Any], folder: Path, tokens: float
) -> list[list[float]] | None:
    """The finished curve of exactly this job and budget, or None."""
    path = folder / "curve.json"
    if not path.is_file():
        return None
    record = json.loads(path.read_text())
    if record["spec"] == document and record["tokens"] >= tokens:
        return record["curve"]
    print(f"{path} is of another job or a smaller budget: it counts as missing", file=sys.stderr)
    return None


def play(document: Mapping[str, Any], folder: Path, plan: argparse.Namespace) -> list[list[float]]:
    """Train until the budget of tokens is spent; (tokens so far, held-out success) at each eval."""
    if (recorded := kept_curve(document, folder, plan.tokens)) is not None:
        return recorded
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "spec.yaml").write_text(yaml.safe_dump(dict(document)))
    runs = folder / f"runs-{int(time.time())}"
    command = [sys.executable, "-m", "troupe.cli", "train", str(folder / "spec.yaml"), "--json"]
    with (folder / "train.log").open("w") as log:
        process = subprocess.Popen(
            [*command, "--runs-dir", str(runs)], stdout=log, stderr=subprocess.STDOUT
        )
        deadline = time.monotonic() + plan.run_timeout_s
        try:
            while process.poll() is None and time.monotonic() < deadline:
                time.sleep(1.0)
                curve = _curve(runs)
                if curve and curve[-1][0] >= plan.tokens:
                    break
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGINT)
            process.wait(END_S)
    curve = _curve(runs)
    if not curve or (curve[-1][0] < plan.tokens and process.returncode != 0):
        raise RunFailed(f"it ended before its budget; look at {folder / 'train.log'}")
    whole = {"spec": document, "tokens": plan.tokens, "curve": curve}
    part = folder / "curve.json.part"
    part.write_text(json.dumps(whole))
    part.rename(folder / "curve.json")
    return curve


def _curve(runs: Path) -> list[list[float]]:
    """From the only run in ``runs``; a torn last line is not read."""
    files = list(runs.glob("*/metrics.jsonl"))
    if not files:
        return []
    text = files[0].read_text("utf-8")
    lines = [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]
    tokens = {x["step"]: x["num_tokens"] for x in lines if x["kind"] == "train"}
    evals = sorted((x["step"], x["success"]) for x in lines if x["kind"] == "eval")
    return [
        [float(sum(n for s, n in tokens.items() if s < step)), float(success)]
        for step, success in evals
    ]


def at_budget(curve: Sequence[Sequence[float]], tokens: float) -> float:
    """Success when ``tokens`` were sampled, between the evaluations around it."""
    before = [point for point in curve if point[0] <= tokens][-1]
    after = next((point for point in curve if point[0] > tokens), before)
    span = after[0] - before[0]
    share = (tokens - before[0]) / span if span else 0.0
    return before[1] + share * (after[1] - before[1])


def interval(values: Sequence[float]) -> tuple[float, float, float]:
    """Mean and 95 % interval over seeds, within 0 and 1."""
    mean = statistics.fmean(values)
    if len(values) < 2:
        return mean, 0.0, 1.0
    half = T95[len(values)] * statistics.stdev(values) / math.sqrt(len(values))
    return mean, max(0.0, mean - half), min(1.0, mean + half)


def cells_of(plan: argparse.Namespace) -> list[Cell]:
    """Every cell of the table, seed by seed, so that a stop leaves all arms alike."""
    return [
        Cell(task, arm, seed) for task in plan.tasks for seed in plan.seeds for arm in plan.arms
    ]


def run(plan: argparse.Namespace) -> dict[Cell, list[list[float]]]:
    """Play the chosen cells, and gather all finished ones; one that fails is said and left out."""
    tasks = SMALL if plan.quick or plan.small else TASKS
    curves: dict[Cell, list[list[float]]] = {}
    for cell in cells_of(plan):
        task, folder = tasks[cell.task], plan.work / cell.task
        model = folder / "base"
        is_wanted = not plan.report and (not plan.cells or str(cell) in plan.cells)
        if is_wanted:
            flags = QUICK_MODEL if plan.quick else small_model(cell.task) if plan.small else {}
            model = make_model(task, folder, flags)
        document = spec_of(cell.arm, task, model, cell.seed, plan)
        cell_folder = folder / f"{cell.arm}-{cell.seed}"
        curve = kept_curve(document, cell_folder, plan.tokens)
        if curve is None and is_wanted:
            try:
                curve = play(document, cell_folder, plan)
            except RunFailed as error:
                print(f"{cell}: {error}", file=sys.stderr)
            else:
                at_end = round(at_budget(curve, plan.tokens), 4)
                print(json.dumps({"cell": str(cell), "success": at_end}), flush=True)
        if curve is not None:
            curves[cell] = curve
    return curves


def rows_of(
    curve_of: Mapping[Cell, list[list[float]]], plan: argparse.Namespace
) -> list[dict[str, Any]]:
    """One row a task and arm, over the seeds that are there."""
    rows: list[dict[str, Any]] = []
    for task, name in ((t, a) for t in plan.tasks for a in plan.arms):
        curves = [c for cell, c in curve_of.items() if (cell.task, cell.arm) == (task, name)]
        if not curves:
            continue
        values = [at_budget(curve, plan.tokens) for curve in curves]
        mean, low, high = interval(values)
        rows.append(
            {
                "task": task,
                "arm": name,
                "algorithm": ARMS[name].algorithm,
                "level": ARMS[name].level,
                "n": len(values),
                "base": round(statistics.fmean(c[0][1] for c in curves), 4),
                "success": round(mean, 4),
                "median": round(statistics.median(values), 4),
                "spread": [round(low, 4), round(high, 4)],
                "values": [round(v, 4) for v in values],
                "curves": curves,
            }
        )
    return rows


def goals(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """AT-GRPO's interval lies above those of its rivals."""
    lines: list[dict[str, Any]] = []
    by = {(row["task"], row["arm"]): row for row in rows}
    for (task, arm), row in by.items():
        best = by.get((task, "at_grpo"))
        if arm in RIVALS and best is not None:
            gap = round(best["spread"][0] - row["spread"][1], 4)
            lines.append(goal(f"{task}: AT-GRPO's interval above {arm}'s", gap, 0.0, gap > 0.0))
    return lines


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The plan of the comparison."""
    parser = argparse.ArgumentParser(
        description=__doc__, prog="python -m benchmarks.learning_curve"
    )
    parser.add_argument("--tasks", default=",".join(TASKS))
    parser.add_argument("--arms", default=",".join(ARMS))
    parser.add_argument("--seeds", default="0,1,2", help="at most five")
    parser.add_argument("--cells", default="", help="play these only: task:arm:seed,...")
    parser.add_argument("--report", action="store_true", help="play nothing")
    parser.add_argument("--results", type=Path, help="folder of table and plot")
    parser.add_argument("--small", action="store_true", help="4x4, fewer holes, small base model")
    parser.add_argument("--tokens", type=int, default=1_500_000, help="sampled in training, a run")
    parser.add_argument("--max-steps", type=int, default=400)
    parser.add_argument("--tasks-per-step", type=int, default=48)
    parser.add_argument("--eval-tasks", type=int, default=200)
    parser.add_argument("--eval-every", type=int, default=10)
    parser.add_argument("--lora-rate", type=float, default=2e-3)
    parser.add_argument("--full-rate", type=float, default=3e-4)
    parser.add_argument("--run-timeout-s", type=float, default=3600.0)
    parser.add_argument("--work", type=Path, default=Path("runs/learning_curve"))
    parser.add_argument("--quick", action="store_true", help="4x4 grids, two arms, one seed")
    plan = parser.parse_args(arguments)
    if plan.quick:
        plan.tasks, plan.arms, plan.seeds, plan.tokens = "plan_path", "at_grpo,mas_grpo", "0", 4000
        plan.max_steps, plan.tasks_per_step, plan.eval_tasks, plan.eval_every = 8, 8, 16, 4
        plan.work = Path(f"runs/learning_curve_quick-{os.getpid()}")
    plan.tasks, plan.arms = plan.tasks.split(","), plan.arms.split(",")
    plan.seeds = [int(seed) for seed in plan.seeds.split(",")][: max(T95)]
    plan.cells = [cell for cell in plan.cells.split(",") if cell]
    if unknown := set(plan.cells) - {str(cell) for cell in cells_of(plan)}:
        parser.error(f"no such cells: {', '.join(sorted(unknown))}")
    plan.results = plan.results or (plan.work if plan.quick else RESULTS)
    return plan


def main() -> None:
    """Run what is missing, then say everything."""
    plan = parse()
    clean_up_on_sigterm()
    plan.work.mkdir(parents=True, exist_ok=True)
    curves = run(plan)
    rows = rows_of(curves, plan)
    missing = [str(cell) for cell in cells_of(plan) if cell not in curves]
    if rows:
        write_report(rows, missing, plan)
    result = {
        "benchmark": "learning_curve",
        "commit": commit(),
        "machine": machine(),
        "n": len(plan.seeds),
        "tokens": plan.tokens,
        "rows": [{k: v for k, v in row.items() if k != "curves"} for row in rows],
        "missing": missing,
        "goals": goals(rows),
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
