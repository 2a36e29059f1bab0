"""Part: where the time of a job's steps goes, and how long its GPUs do nothing.

Reads the run folder that the part ``team`` left; starts nothing. A replica is idle for the share of
the drawing in which it drew nothing, and for all of a step that is not drawing; the trainer for all
that is not learning. On one shared device, both users count as one.
"""

import argparse
import json
import os
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.gpu_suite.team import ROOT, run_of
from benchmarks.report import goal
from troupe.spec import load_spec
from troupe.spec.fit import fit_batch
from troupe.spec.memory import CONTEXT_BYTES, GB

IDLE = 0.15
"""Goal with max_staleness 1; strictly on-policy, one side waits for the other by construction."""
FIELDS = ("mfu", "wall_s", "play_s", "waited_s", "stage_s", "activate_s", "tail_s", "tokens_per_s")


def steps_of(run: Path) -> list[dict[str, Any]]:
    """Lines of training steps, without the first where there are more: it warms up."""
    lines = (run / "metrics.jsonl").read_text("utf-8").splitlines()
    steps = [line for line in map(json.loads, lines) if line["kind"] == "train"]
    return steps[1:] or steps


def idle_of(step: dict[str, Any], *, shared: bool) -> dict[str, float]:
    """Shares of a step in which servers and trainer did nothing."""
    wall, phases = step["wall_s"], step["phases"]
    drawn, learnt = phases.get("generate", 0.0), phases.get("learn", 0.0)
    within = statistics.fmean((step.get("replica_idle") or {"": 0.0}).values())
    serving = drawn * (1 - within)
    if shared:
        return {"device": 1 - (serving + learnt) / wall}
    return {"servers": 1 - serving / wall, "trainer": 1 - learnt / wall}


def summary(steps: Sequence[dict[str, Any]], *, shared: bool) -> dict[str, Any]:
    """Medians over steps."""

    def middle(values: list[float]) -> float:
        return round(statistics.median(values), 4)

    idle = [idle_of(step, shared=shared) for step in steps]
    phases = [step["phases"] for step in steps]
    peaks = [peak for step in steps if (peak := step["peak_memory_bytes"]) is not None]
    return {
        "steps": len(steps),
        "idle": {name: middle([row[name] for row in idle]) for name in idle[0]},
        "phases": {name: middle([row.get(name, 0.0) for row in phases]) for name in phases[0]},
        **{
            name: middle([step[name] for step in steps if step.get(name) is not None])
            for name in FIELDS
            if any(step.get(name) is not None for step in steps)
        },
        "peak_memory_gb": round(max(peaks) / GB, 2) if peaks else None,
    }


def measure(args: argparse.Namespace) -> dict[str, Any]:
    """The summary, and the memory of the job beside its prediction."""
    runs = args.run or run_of(args.folder / "runs", args.name)
    if runs is None or not (runs / "metrics.jsonl").is_file():
        return {"skipped": "the part `team` left no run folder with steps", "goals": []}
    steps = steps_of(runs)
    if not steps:
        return {"skipped": f"{runs} has no learnt step yet", "goals": []}
    figures: dict[str, Any] = summary(steps, shared=args.shared) | {
        "run": os.path.relpath(runs, ROOT)
    }
    goals: list[dict[str, Any]] = []
    for name, share in figures["idle"].items():
        goals.append(goal(f"idle share: {name}", share, IDLE, share <= IDLE))
    if args.gpu_gb:
        peak = fit_batch(load_spec(runs / "spec.json"), int(args.gpu_gb * GB)).peak_bytes
        if peak:
            predicted = round((peak - CONTEXT_BYTES) / GB, 2)
            figures["predicted_gb"] = predicted
            measured, most = figures["peak_memory_gb"], round(predicted * 1.1, 2)
            if measured is not None:  # a trainer without an accelerator measures none
                fits = measured <= most
                goals.append(goal("peak of the job's trainer, GB", measured, most, fits))
    return figures | {"goals": goals}


def main() -> None:
    """Read the options and print the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--run", type=Path, default=None, help="a run folder")
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "gpu_suite" / "team")
    parser.add_argument("--name", default="suite-math", help="of the job")
    parser.add_argument("--shared", action="store_true", help="server and trainer take turns")
    parser.add_argument("--gpu-gb", type=float, default=0.0, help="0: memory is not compared")
    print(json.dumps(measure(parser.parse_args())))


if __name__ == "__main__":
    main()
