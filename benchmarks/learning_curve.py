"""Held-out success over generated tokens: AT-GRPO beside its rivals, and policy levels L0 to L3.

Run: ``python -m benchmarks.learning_curve [--quick]``. Every arm trains the same base model on the
same small tasks through the whole local platform until it has sampled the same budget of tokens;
seeds give intervals. A finished run is kept under ``--work`` and never repeated, so the command may
be stopped and called again. The last line is one JSON object; exits 0 whatever the curves show.
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

from benchmarks.report import commit, goal, machine

RESULTS = Path(__file__).parent / "results"
T95 = {1: math.inf, 2: 12.706, 3: 4.303, 4: 3.182, 5: 2.776}
"""Student's t of a 95 % interval, by number of seeds."""
RIVALS = ("grpo_single", "mas_grpo")


@dataclass(frozen=True)
class Task:
    """What is played: the family, the base model, and the seats of a team and of one agent."""

    params: dict[str, Any]
    family: str
    max_new_tokens: int
    size: int
    alone: str = "planner"


TASKS = {
    "plan_path": Task({"size": 6, "max_actions": 4}, "plan_path", 6, 6),
    "sudoku": Task({"size": 4, "holes": 6, "max_actions": 6}, "sudoku", 14, 4),
}
QUICK = {"plan_path": Task({"size": 4, "max_actions": 3}, "plan_path", 6, 4)}
QUICK_MODEL = {
    "--shape": {"hidden_size": 64, "num_layers": 2, "num_heads": 2, "intermediate_size": 128},
    "--warm-start": {"num_careful_steps": 250, "num_careless_steps": 50, "batch_size": 32},
}


@dataclass(frozen=True)
class Arm:
    """One line of the plot: an algorithm and who learns with which weights."""

    algorithm: str
    level: str

    def policies(self, task: Task) -> dict[str, str]:
        """agent -> policy."""
        if self.level == "L0":
            return {task.alone: "shared"}
        agents = ("tool", "planner")
        return {a: "shared" if self.level == "L1" else a for a in agents}


ARMS = {
    "at_grpo": Arm("at_grpo", "L1"),
    "grpo_single": Arm("grpo", "L0"),
    "mas_grpo": Arm("grpo", "L1"),
    "magrpo": Arm("magrpo", "L1"),
    "marloo": Arm("marloo", "L1"),
    "ippo": Arm("ippo", "L1"),
    "at_grpo_L0": Arm("at_grpo", "L0"),
    "at_grpo_L2": Arm("at_grpo", "L2"),
    "at_grpo_L3": Arm("at_grpo", "L3"),
}


def spec_of(
    name: str, task: Task, model: Path, seed: int, plan: argparse.Namespace
) -> dict[str, Any]:
    """The job of one arm; the levels differ in the map agent -> policy and in what is trained."""
    arm = ARMS[name]
    seats = arm.policies(task)
    train = {"kind": "full"} if arm.level == "L3" else {"kind": "lora", "rank": 32, "alpha": 64}
    rate = plan.full_rate if arm.level == "L3" else plan.lora_rate
    policy = {
        "model": str(model.absolute()),
        "train": train,
        "optimizer": {"learning_rate": rate, "warmup_steps": 5},
    }
    return {
        "name": name.lower().replace("_", "-"),
        "seed": seed,
        "steps": plan.max_steps,
        "tasks_per_step": plan.tasks_per_step * (2 if arm.level == "L0" else 1),
        "task": {"name": task.family, "params": task.params},
        "workflow": {"order": list(seats), "max_turns": 4},
        "agents": {agent: {"policy": policy_name} for agent, policy_name in seats.items()},
        "policies": dict.fromkeys(sorted(set(seats.values())), policy),
        "algorithm": {"kind": arm.algorithm, "group_size": 8},
        "sampling": {"max_new_tokens": task.max_new_tokens},
        "batch": {"tokens_per_row": 256},
        "eval": {"num_tasks": plan.eval_tasks, "every": plan.eval_every},
    }


def make_model(task: Task, folder: Path, *, is_quick: bool) -> Path:
    """The base model that all arms begin with; made once."""
    path = folder / "base"
    if not (path / "manifest.json").is_file():
        command = [sys.executable, "-m", "services.trainer.tiny_model", "--task", task.family]
        command += ["--size", str(task.size), "--params", json.dumps(task.params)]
        for flag, value in (QUICK_MODEL if is_quick else {}).items():
            command += [flag, json.dumps(value)]
        subprocess.run([*command, "--out", str(path)], check=True, stdout=sys.stderr)
    return path


def play(document: Mapping[str, Any], folder: Path, plan: argparse.Namespace) -> list[list[float]]:
    """Train until the budget of tokens is spent; (tokens so far, held-out success) at each eval."""
    kept = folder / "curve.json"
    if kept.is_file():
        return json.loads(kept.read_text())
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
            process.wait(120)
    curve = _curve(runs)
    if not curve or (curve[-1][0] < plan.tokens and process.returncode != 0):
        raise SystemExit(f"{folder} ended before its budget; look at {folder / 'train.log'}")
    kept.write_text(json.dumps(curve))
    return curve


def _curve(runs: Path) -> list[list[float]]:
    """From the only run in ``runs``; a torn last line is not read."""
    found = list(runs.glob("*/metrics.jsonl"))
    if not found:
        return []
    text = found[0].read_text("utf-8")
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


def compare(task_name: str, task: Task, plan: argparse.Namespace) -> list[dict[str, Any]]:
    """All arms of one task."""
    folder = plan.work / task_name
    model = make_model(task, folder, is_quick=plan.quick)
    rows: list[dict[str, Any]] = []
    for name in plan.arms:
        curves = [
            play(spec_of(name, task, model, seed, plan), folder / f"{name}-{seed}", plan)
            for seed in range(plan.seeds)
        ]
        values = [at_budget(curve, plan.tokens) for curve in curves]
        mean, low, high = interval(values)
        rows.append(
            {
                "task": task_name,
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
        print(json.dumps({k: v for k, v in rows[-1].items() if k != "curves"}), flush=True)
    return rows


def goals(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """AT-GRPO's interval lies above those of its rivals."""
    found: list[dict[str, Any]] = []
    by = {(row["task"], row["arm"]): row for row in rows}
    for (task, arm), row in by.items():
        best = by.get((task, "at_grpo"))
        if arm in RIVALS and best is not None:
            gap = round(best["spread"][0] - row["spread"][1], 4)
            found.append(goal(f"{task}: AT-GRPO's interval above {arm}'s", gap, 0.0, gap > 0.0))
    return found


def write_table(rows: Sequence[Mapping[str, Any]], plan: argparse.Namespace) -> None:
    """Table and picture beside the other results."""
    text = [
        f"# Held-out success after {plan.tokens:,} generated tokens",
        "",
        f"`python -m benchmarks.learning_curve`, commit {commit()}, {machine()}, "
        f"{plan.seeds} seeds, "
        f"{plan.eval_tasks} held-out tasks; 95 % intervals (Student's t over seeds).",
        "",
        "| task | arm | algorithm | level | base | success | interval |",
        "|---|---|---|---|---|---|---|",
    ]
    text += [
        f"| {r['task']} | {r['arm']} | {r['algorithm']} | {r['level']} | {r['base']:.3f} | "
        f"{r['success']:.3f} | {r['spread'][0]:.3f} - {r['spread'][1]:.3f} |"
        for r in rows
    ]
    text += ["", "![curves](learning_curve.png)", ""]
    (plan.results / "learning_curve.md").write_text("\n".join(text))
    draw(rows, plan.results / "learning_curve.png")


def draw(rows: Sequence[Mapping[str, Any]], path: Path) -> None:
    """One panel a task, one line a seed, one colour an arm."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    tasks = sorted({row["task"] for row in rows})
    figure, axes = plt.subplots(1, len(tasks), figsize=(7 * len(tasks), 4.5), squeeze=False)
    for axis, task in zip(axes[0], tasks, strict=True):
        for number, row in enumerate(r for r in rows if r["task"] == task):
            for i, curve in enumerate(row["curves"]):
                xs, ys = zip(*curve, strict=True)
                label = row["arm"] if i == 0 else None
                axis.plot(xs, ys, color=f"C{number}", alpha=0.7, label=label)
        axis.set(title=task, xlabel="generated tokens", ylabel="held-out success", ylim=(0, 1))
        axis.legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    plt.close(figure)


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The plan of the comparison."""
    parser = argparse.ArgumentParser(
        description=__doc__, prog="python -m benchmarks.learning_curve"
    )
    parser.add_argument("--tasks", default=",".join(TASKS))
    parser.add_argument("--arms", default=",".join(ARMS))
    parser.add_argument("--seeds", type=int, default=3, choices=range(1, 6))
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
        plan.tasks, plan.arms, plan.seeds, plan.tokens = "plan_path", "at_grpo,mas_grpo", 1, 4000
        plan.max_steps, plan.tasks_per_step, plan.eval_tasks, plan.eval_every = 8, 8, 16, 4
        plan.work = Path(f"runs/learning_curve_quick-{os.getpid()}")
    plan.tasks, plan.arms = plan.tasks.split(","), plan.arms.split(",")
    plan.results = plan.work if plan.quick else RESULTS
    return plan


def main() -> None:
    """Run what is missing, then say everything."""
    plan = parse()
    plan.work.mkdir(parents=True, exist_ok=True)
    tasks = QUICK if plan.quick else TASKS
    rows = [row for name in plan.tasks for row in compare(name, tasks[name], plan)]
    write_table(rows, plan)
    result = {
        "benchmark": "learning_curve",
        "commit": commit(),
        "machine": machine(),
        "n": plan.seeds,
        "tokens": plan.tokens,
        "rows": [{k: v for k, v in row.items() if k != "curves"} for row in rows],
        "goals": goals(rows),
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
