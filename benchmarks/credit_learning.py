"""Whether a team learns under the credit algorithms that nothing else here has trained.

Run: ``python -m benchmarks.credit_learning [--arms shapley,ccpo] [--minutes 8] [--quick]``. Every
arm trains the demo's base on the demo's task (a scout sees, a walker knows the goal) through the
whole local platform until it has sampled the same number of tokens, at one learning rate; then base
and teams play test tasks at temperature 1 and greedily. Arms with the agents' own terms and an
entropy bonus have one seed, those of the team's return alone three. None is tuned, so this says of
each arm whether it moves the base, and ranks none: `benchmarks.learning_curve` compares.

Finished arms are lines of ``results/credit_learning.jsonl`` and are never repeated; a call that
``--minutes`` ends is gone on from. Prints the tables and, last, one JSON object.
"""

import argparse
import json
import math
import os
import re
import statistics
import subprocess
import sys
import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.budget_runs import BudgetRun, RunPool
from benchmarks.demo_overhead import quick_model
from benchmarks.intervals import interval
from benchmarks.learning_arms import NO_ENTROPY, TASKS, Arm, Setting, spec_of
from benchmarks.learning_cells import Budget, base_digest, make_model, play_model
from benchmarks.report import commit, machine
from troupe.evaluation.estimators import wilson

TASK = replace(TASKS["guided_walk"], first_test=0)
"""With the test tasks of the lines that are kept."""
SETTING = Setting(5e-4, 8)
TOKENS, TESTS, EVALS, EVERY = 100_000, 400, 200, 8
FIRST_PORT = 25_600
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


def _plain(name: str) -> Arm:
    """The arm with the team's return alone, no terms of an agent's own, and no entropy bonus."""
    return replace(ARMS[name], own={**ARMS[name].own, **NO_ENTROPY}, has_terms=False)


WHOLE = ("grpo", "tree_grpo", "gagpo", "shapley", "ccpo", "matpo", "m_grpo")
"""Those that credit an act with more than its own reward."""
PLAIN = {f"{name}, team's return": _plain(name) for name in WHOLE}
PLAIN |= {
    "grpo, no bonus": replace(ARMS["grpo"], own=NO_ENTROPY),
    "grpo, team's return with bonus": replace(ARMS["grpo"], has_terms=False),
}
"""With three seeds; the last two part what the others change together."""
SEEDS = {**dict.fromkeys(ARMS, (0,)), **dict.fromkeys(PLAIN, (0, 1, 2))}
Run = tuple[str, int]
"""An arm and a seed."""


def job_of(run: Run, model: Path) -> dict[str, Any]:
    """An arm's job as `benchmarks.learning_curve` would play it; only the algorithms differ."""
    name, seed = run
    arm, kind = (ARMS | PLAIN)[name], name.partition(",")[0]
    job = spec_of(kind, arm, TASK, model, SETTING, seed, steps=1000, eval_tasks=EVALS)
    job["eval"]["every"] = EVERY
    return job


def tests_of(model: Path, folder: Path, number: int) -> dict[str, Any]:
    """``number`` test tasks, played with ``model``: by temperature, 1 or 0 for each, and a sum."""
    budget = Budget(TOKENS, EVALS, number, COMMAND_S)
    tests = play_model(TASK, TASK.seats, model, folder / "tests", budget)["test"]
    solved = {temperature: digits.count("1") for temperature, digits in tests.items()}
    return {"tests": number, "solved": solved, "test": tests}


def arm_line(
    run: Run, model: Path, folder: Path, plan: argparse.Namespace, pool: RunPool, port: int
) -> dict[str, Any] | None:
    """The run's line; None where its budget is not sampled yet."""
    job = job_of(run, model)
    arm = BudgetRun(folder, job)
    if not arm.is_done(plan.tokens):
        arm.train(plan.tokens, pool.left_s(), port_base=port, stopped=pool.stopped)
    if not arm.is_done(plan.tokens):
        return None
    trained = next((folder / "runs").glob("*/metrics.jsonl")).parent
    exported = folder / "exported"
    command = [sys.executable, "-m", "troupe.cli", "export", str(trained), "--out", str(exported)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, timeout=COMMAND_S)
    return {
        "arm": run[0],
        "seed": run[1],
        "commit": commit(),
        "machine": machine(),
        "algorithm": job["algorithm"],
        "tokens": arm.tokens(),
        "steps": len({line["step"] for line in arm.lines("train")}),
        "curve": arm.curve(),
        **tests_of(exported / "shared" / "merged", folder, plan.tests),
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


def seeds_row(lines: Sequence[dict[str, Any]], base: dict[str, Any]) -> str:
    """One line of the table of arms with several seeds: means and differences from the base."""
    cells = [lines[0]["arm"], f"{statistics.mean(line['tokens'] for line in lines):,.0f}"]
    maps = TASK.twins(base["tests"])
    for temperature in ("1", "0"):
        played = np.array([[int(x) for x in line["test"][temperature]] for line in lines])
        before = np.array([[int(x) for x in base["test"][temperature]]] * len(lines))
        mean, low, high = interval(played, maps=maps)
        each = ", ".join(f"{100 * seed.mean():.1f}" for seed in played)
        cells.append(f"{mean} ({low} to {high}): {each}")
        mean, low, high = interval(played, before, maps=maps)
        cells.append(f"{mean:+} ({low} to {high})")
    return f"| {' | '.join(cells)} |"


def lines_of(path: Path) -> dict[Run, dict[str, Any]]:
    """Run -> its finished line."""
    text = path.read_text("utf-8") if path.is_file() else ""
    lines = map(json.loads, text.splitlines())
    return {(line["arm"], line.get("seed", 0)): line for line in lines}


def parse() -> argparse.Namespace:
    """What is played, and where it is kept."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--arms", default="", help="first letters of arms, by commas; all if empty")
    parser.add_argument("--minutes", type=float, default=math.inf, help="of training, a call")
    parser.add_argument("--folder", type=Path, default=Path("runs/credit_learning"))
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--workers", type=int, default=1, help="runs at once")
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
    folder, adding = plan.folder.absolute(), threading.Lock()
    model = quick_model(folder / "base") if plan.quick else make_model(TASK, folder / "base")
    pool = RunPool(plan.workers, FIRST_PORT, plan.minutes)

    def one(run: Run, port: int) -> None:
        name, seed = run
        at = folder / re.sub(r"\W+", "-", name) / str(seed)
        if name == "base":
            line = {"arm": name, "seed": seed, **tests_of(model, at, plan.tests)}
        else:
            line = arm_line(run, model, at, plan, pool, port)
        if line is not None:
            line["base"] = base_digest(model)
            with adding, plan.results.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")

    chosen = [name for name in SEEDS if name.startswith(tuple(plan.arms.split(",")))]
    runs = [("base", 0), *((name, seed) for name in chosen for seed in SEEDS[name])]
    done = lines_of(plan.results)
    pool.play([lambda: [run for run in runs if run not in done]], one)


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
        if (name, 0) in lines:
            print(row_of(lines[name, 0]))
    print(
        "\n| arm, three seeds | tokens | T = 1, %: each | less base | greedy, %: each | less base |"
    )
    print("|---|---|---|---|---|---|")
    for name in PLAIN:
        if all((name, seed) in lines for seed in SEEDS[name]):
            print(seeds_row([lines[name, seed] for seed in SEEDS[name]], lines["base", 0]))
    about = {"benchmark": "credit_learning", "commit": commit(), "machine": machine()}
    print(json.dumps({**about, "lines": list(lines.values())}))


if __name__ == "__main__":
    main()
