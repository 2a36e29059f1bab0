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
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.demo_overhead import quick_model
from benchmarks.learning_arms import STEP, TASKS
from benchmarks.learning_cells import make_model
from benchmarks.program_arms import Arm
from benchmarks.report import commit, machine
from troupe.evaluation.estimators import wilson

TASK = TASKS["guided_walk"]
RATE, TASKS_PER_STEP, WARM_UP = 5e-4, 8, 5
TOKENS, TESTS, EVALS, EVERY = 100_000, 400, 200, 8
COMMAND_S = 600.0
RESULTS = Path(__file__).parent / "results" / "credit_learning.jsonl"
OWN_REWARD = 1e-6
"""A discount at which an act is worth what is paid for it alone."""

ARMS: dict[str, dict[str, Any]] = {
    "at_grpo": {"kind": "at_grpo", "group_size": 8},
    "gigpo, an act's own reward": {
        "kind": "gigpo",
        "group_size": 8,
        "params": {"gamma": OWN_REWARD},
    },
    "gagpo": {"kind": "gagpo", "group_size": 8},
    "grpo": {"kind": "grpo", "group_size": 8},
    "tree_grpo": {"kind": "tree_grpo", "group_size": 8, "params": {"trees": 2}},
    "shapley": {"kind": "shapley", "group_size": 4},
    "ccpo": {"kind": "ccpo", "group_size": 4},
    "matpo": {"kind": "matpo", "group_size": 8, "params": {"lead": "walker"}},
    "m_grpo": {"kind": "m_grpo", "group_size": 8},
}


def spec_of(name: str, model: Path) -> dict[str, Any]:
    """The job of an arm; arms differ in the algorithm alone."""
    policy = {
        "model": str(model.absolute()),
        "train": {"kind": "lora", "rank": 32, "alpha": 64},
        "optimizer": {"learning_rate": RATE, "warmup_steps": WARM_UP},
    }
    return {
        "name": name.partition(",")[0].replace("_", "-"),
        "seed": 0,
        "steps": 1000,
        "tasks_per_step": TASKS_PER_STEP,
        "task": {"name": TASK.family, "params": TASK.params},
        "workflow": {"order": list(TASK.seats), "max_turns": TASK.max_turns},
        "agents": {seat: {"policy": "shared"} for seat in TASK.seats},
        "policies": {"shared": policy},
        "algorithm": {**STEP, **ARMS[name]},
        "sampling": {"max_new_tokens": TASK.max_new_tokens},
        "batch": {"tokens_per_row": 256},
        "eval": {"num_tasks": EVALS, "split": "validation", "every": EVERY},
    }


def solved_by(model: Path, out: Path, number: int) -> dict[str, int]:
    """Temperature -> how many of ``number`` test tasks the seats solve with ``model``."""
    found: dict[str, int] = {}
    for temperature in ("1", "0"):
        folder = out / f"test-{temperature}"
        command = ["eval", "--task", TASK.family, "--params", json.dumps(TASK.params)]
        command += ["--policy", str(model), "--agents", ",".join(TASK.seats), "--split", "test"]
        command += ["--max-turns", str(TASK.max_turns), "--n", str(number)]
        command += ["--max-new-tokens", str(TASK.max_new_tokens), "--temperature", temperature]
        _troupe([*command, "--out", str(folder)])
        lines = (folder / "episodes.jsonl").read_text("utf-8").splitlines()
        found[temperature] = sum(bool(json.loads(line)["is_success"]) for line in lines)
    return found


def _troupe(command: Sequence[str]) -> None:
    subprocess.run(
        [sys.executable, "-m", "troupe.cli", *command],
        check=True,
        stdout=subprocess.DEVNULL,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        timeout=COMMAND_S,
    )


def arm_line(
    name: str, model: Path, folder: Path, *, tokens: int, number: int, left_s: float
) -> dict[str, Any] | None:
    """The arm's line; None where its budget is not sampled yet."""
    arm = Arm(folder, spec_of(name, model))
    if not arm.is_done(tokens):
        arm.train(tokens, left_s)
    if not arm.is_done(tokens):
        return None
    exported = folder / "exported"
    run = next((folder / "runs").glob("*/metrics.jsonl")).parent
    _troupe(["export", str(run), "--out", str(exported)])
    return {
        "arm": name,
        "commit": commit(),
        "machine": machine(),
        "algorithm": ARMS[name],
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
    model = quick_model(folder / "base") if plan.quick else make_model(TASK, folder)
    chosen = [name for name in ARMS if name.startswith(tuple(plan.arms.split(",")))]
    for name in ["base", *chosen]:
        if name in lines_of(plan.results) or (left_s := ends_at - time.monotonic()) <= 0:
            continue
        at = folder / name.replace(",", "").replace(" ", "-")
        if name == "base":
            solved = solved_by(model, folder / "base-tests", plan.tests)
            line = {"arm": name, "tests": plan.tests, "solved": solved}
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
