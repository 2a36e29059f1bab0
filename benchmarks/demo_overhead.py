"""The cost of being a distributed system: phase times of a small job's steps, as one JSON line.

Runs examples/plan_path_6x6.yaml through all four services in a folder of its own, without
evaluation, and sets the time in generate + learn against the wall time of each step.
``--quick`` plays fewer steps. Prints progress on stderr and exits 0 whatever the numbers are; a
run that fails exits 1.
"""

import argparse
import json
import os
import platform
import socket
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.report import commit

ROOT = Path(__file__).parents[1]
GOAL = 0.85
LIMIT_S = 1800


def main() -> int:
    """Run, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m benchmarks.demo_overhead")
    parser.add_argument("--spec", type=Path, default=ROOT / "examples" / "plan_path_6x6.yaml")
    parser.add_argument("--model", type=Path, default=ROOT / "models" / "plan_path_6x6")
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--quick", action="store_true", help="four steps of four tasks")
    args = parser.parse_args()
    overrides = [f"steps={4 if args.quick else args.steps}", "eval.num_tasks=0"]
    overrides += ["tasks_per_step=4"] if args.quick else []
    with tempfile.TemporaryDirectory(prefix="troupe-overhead-") as scratch:
        model = args.model
        if not (model / "config.json").is_file():
            model = quick_model(Path(scratch) / "model")
        overrides.append(f"policies.shared.model={model}")
        lines = run_job(args.spec, overrides, Path(scratch) / "runs")
    if lines is None:
        return 1
    lines = [line for line in lines if line["kind"] == "train"]
    print(json.dumps(_report(args.spec, overrides, lines)))
    return 0


def quick_model(folder: Path) -> Path:
    """A model that is right now and then, made in seconds.

    As slow as a good one, and its groups have rewards that differ: a flat step learns nothing, and
    would be measured without the time of the trainer.
    """
    command = [sys.executable, "-m", "troupe_trainer.tiny_model", "--out", str(folder)]
    recipe = json.dumps({"num_careful_steps": 60, "num_careless_steps": 0})
    subprocess.run([*command, "--warm-start", recipe], stdout=sys.stderr, check=True)
    return folder


def run_job(spec: Path, overrides: list[str], runs_dir: Path) -> list[dict[str, Any]] | None:
    """Lines of metrics.jsonl of a job, or None when it failed."""
    flags = [part for override in overrides for part in ("--set", override)]
    for name in ("rest", "grpc", "admin", "redis"):
        flags += [f"--{name}-port", str(free_port())]
    command = [sys.executable, "-m", "troupe.cli", "train", str(spec), "--runs-dir", str(runs_dir)]
    if _run([*command, *flags]) != 0:
        return None
    [metrics] = runs_dir.glob("*/metrics.jsonl")
    return [json.loads(line) for line in metrics.read_text("utf-8").splitlines()]


def _run(command: list[str]) -> int:
    """Run until it ends; past the limit it is told to end in order, so that nothing stays."""
    with subprocess.Popen(command, stdout=sys.stderr) as process:
        try:
            return process.wait(LIMIT_S)
        except subprocess.TimeoutExpired:
            process.terminate()
            return process.wait(120) or 1


def _report(spec: Path, overrides: list[str], lines: list[dict[str, Any]]) -> dict[str, Any]:
    # The first step also pays for what happens once: caches, the optimizer's state.
    steady = lines[1:] or lines
    ratios = [_busy(line) for line in steady]
    value = sum(_busy_s(line) for line in steady) / sum(line["wall_s"] for line in steady)
    num_flat = sum(line["is_flat"] for line in lines)
    names = sorted({name for line in steady for name in line["phases"]})
    return {
        "benchmark": "demo_overhead",
        "commit": commit(),
        "machine": {"cpus": os.cpu_count(), "arch": platform.machine()},
        "spec": spec.name,
        "overrides": [o for o in overrides if not o.startswith("policies.")],
        "n": len(steady),
        "median_busy_ratio": round(statistics.median(ratios), 4),
        "spread_busy_ratio": [round(min(ratios), 4), round(max(ratios), 4)],
        "median_step_s": round(statistics.median(line["wall_s"] for line in steady), 3),
        "phases_median_s": {
            name: round(statistics.median(line["phases"].get(name, 0.0) for line in steady), 4)
            for name in names
        },
        "goals": [
            {
                "name": "generate + learn over wall",
                "value": round(value, 4),
                "goal": GOAL,
                "holds": value >= GOAL,
            },
            {
                "name": "steps that taught nothing",
                "value": num_flat,
                "goal": 0,
                "holds": num_flat == 0,
            },
        ],
    }


def _busy_s(line: dict[str, Any]) -> float:
    return line["phases"]["generate"] + line["phases"]["learn"]


def _busy(line: dict[str, Any]) -> float:
    return _busy_s(line) / line["wall_s"]


def free_port() -> int:
    """A port that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


if __name__ == "__main__":
    sys.exit(main())
