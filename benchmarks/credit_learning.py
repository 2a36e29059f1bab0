"""Whether a team learns under the credit algorithms that nothing else here has trained.

Run: ``python -m benchmarks.credit_learning [--arms shapley,ccpo] [--minutes 8] [--quick]``. Every
arm trains the demo's base on the demo's task (a scout sees, a walker knows the goal) through the
whole local platform until it has sampled the same number of tokens, at one learning rate, with one
seed; then base and teams play test tasks at temperature 1 and greedily. None is tuned, so this
says of each arm whether it moves the base, and ranks none: `benchmarks.learning_curve` compares.

Finished arms are lines of ``results/credit_learning.jsonl`` and are never repeated; a call that
``--minutes`` ends is gone on from. Prints the table and, last, one JSON object.
"""

import argparse
import json
import math
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.budget_runs import BudgetRun
from benchmarks.demo_overhead import quick_model
from benchmarks.learning_arms import TASKS, Arm, Setting, spec_of
from benchmarks.learning_cells import Budget, make_model, play_model
from benchmarks.report import commit, machine
from troupe.evaluation.estimators import wilson

TASK = replace(TASKS["guided_walk"], first_test=0)
"""With the test tasks of the lines that are kept."""
SETTING = Setting(5e-4, 8)
TOKENS, TESTS, EVALS, EVERY = 100_000, 400, 200, 8
COMMAND_S = 600.0
RESULTS = Path(__file__).parent / "results" / "credit_learning.jsonl"
OWN_REWARD = 1e-6
"""A discount at which an act is worth what is paid for it alone."""


def _arm(kind: str, group_size: int = 8, **params: Any) -> Arm:
    return Arm(kind, "L1", group_size, {"params": params} if params else {})


ARMS = {
    "at_grpo": _arm("at_grpo"),
    "gigpo, an act's own reward": _arm("gigpo", gamma=OWN_REWARD),
    "gagpo": _arm("gagpo"),
    "grpo": _arm("grpo"),
    "tree_grpo": _arm("tree_grpo", trees=2),
    "shapley": _arm("shapley", 4),
    "ccpo": _arm("ccpo", 4),
    "matpo": _arm("matpo", lead="walker"),
    "m_grpo": _arm("m_grpo"),
}


def job_of(name: str, model: Path) -> dict[str, Any]:
    """An arm's job as `benchmarks.learning_curve` would play it; only the algorithms differ."""
    job = spec_of(
        name.partition(",")[0], ARMS[name], TASK, model, SETTING, 0, steps=1000, eval_tasks=EVALS
    )
    job["eval"]["every"] = EVERY
    return job


def solved_by(model: Path, folder: Path, number: int) -> dict[str, int]:
    """Temperature -> how many of ``number`` test tasks the seats solve with ``model``."""
    budget = Budget(TOKENS, EVALS, number, COMMAND_S)
    tests = play_model(TASK, TASK.seats, model, folder / "tests", budget)["test"]
    return {temperature: digits.count("1") for temperature, digits in tests.items()}


def arm_line(
    name: str, model: Path, folder: Path, *, tokens: int, number: int, left_s: float
) -> dict[str, Any] | None:
    """The arm's line; None where its budget is not sampled yet."""
    job = job_of(name, model)
    arm = BudgetRun(folder, job)
    if not arm.is_done(tokens):
        arm.train(tokens, left_s)
    if not arm.is_done(tokens):
        return None
    run = next((folder / "runs").glob("*/metrics.jsonl")).parent
    exported = folder / "exported"
    command = [sys.executable, "-m", "troupe.cli", "export", str(run), "--out", str(exported)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, timeout=COMMAND_S)
    return {
        "arm": name,
        "commit": commit(),
        "machine": machine(),
        "algorithm": job["algorithm"],
        "tokens": arm.tokens(),
        "steps": len({line["step"] for line in arm.lines("train")}),
        "curve": arm.curve(),
        "tests": number,
        "solved": solved_by(exported / "shared" / "merged", folder, number),
    }


def row_of(line: dict[str, Any]) -> str:
    """One line of the table."""
    cells = [line["arm"]]
    if curve := line.get("curve"):
        shown = " / ".join(f"{100 * success:.0f}" for _, _, success in curve)
        cells += [str(line["steps"]), f"{line['tokens']:,}", shown]
    else:
        cells += ["", "", ""]
    for temperature in ("1", "0"):
        share = line["solved"][temperature] / line["tests"]
        low, high = wilson(share, line["tests"])
        cells.append(f"{100 * share:.1f} ({100 * low:.1f} to {100 * high:.1f})")
    return f"| {' | '.join(cells)} |"


def lines_of(path: Path) -> dict[str, dict[str, Any]]:
    """Arm -> its finished line."""
    text = path.read_text("utf-8") if path.is_file() else ""
    return {line["arm"]: line for line in map(json.loads, text.splitlines())}


def parse() -> argparse.Namespace:
    """What is played, and where it is kept."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--arms", default="", help="first letters of arms, by commas; all if empty")
    parser.add_argument("--minutes", type=float, default=math.inf, help="of training, a call")
    parser.add_argument("--folder", type=Path, default=Path("runs/credit_learning"))
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--report", action="store_true", help="play nothing")
    parser.add_argument("--quick", action="store_true", help="all arms, 1,000 tokens, kept nowhere")
    plan = parser.parse_args()
    plan.tokens, plan.tests = (1000, 16) if plan.quick else (TOKENS, TESTS)
    if plan.quick:
        plan.folder = plan.folder.with_name(f"credit_learning_quick-{os.getpid()}")
        plan.results = plan.folder / RESULTS.name
    return plan


def play(plan: argparse.Namespace) -> None:
    """Append the lines that are missing."""
    folder, ends_at = plan.folder.absolute(), time.monotonic() + 60 * plan.minutes
    model = quick_model(folder / "base") if plan.quick else make_model(TASK, folder / "base")
    chosen = [name for name in ARMS if name.startswith(tuple(plan.arms.split(",")))]
    for name in ["base", *chosen]:
        if name in lines_of(plan.results) or (left_s := ends_at - time.monotonic()) <= 0:
            continue
        at = folder / name.replace(",", "").replace(" ", "-")
        if name == "base":
            line = {"arm": name, "tests": plan.tests, "solved": solved_by(model, at, plan.tests)}
        else:
            line = arm_line(name, model, at, tokens=plan.tokens, number=plan.tests, left_s=left_s)
        if line is not None:
            with plan.results.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")


def main() -> None:
    """Play what is missing, and print what is there."""
    plan = parse()
    if not plan.report:
        plan.folder.mkdir(parents=True, exist_ok=True)
        play(plan)
    lines = lines_of(plan.results)
    print("| arm | steps | tokens | validation, T = 1, % | test, T = 1, % | test, greedy, % |")
    print("|---|---|---|---|---|---|")
    for name in ("base", *ARMS):
        if name in lines:
            print(row_of(lines[name]))
    about = {"benchmark": "credit_learning", "commit": commit(), "machine": machine()}
    print(json.dumps({**about, "lines": list(lines.values())}))


if __name__ == "__main__":
    main()
