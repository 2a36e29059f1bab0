"""A real job that learns while its rounds are played, beside the same job that does not.

Run: ``python -m benchmarks.overlap_job [--quick]``. All four services on this machine, one thread
each: SmolLM2-135M (``troupe model fetch smollm2 --to models/smollm2``) writes and learns the
summaries of examples/smollm2_summaries.yaml, two tickets at once, so that their gradients can be
summed while the others are written. Steps of the job with ``batch.overlap`` are set against the
longer of playing and learning in the one without. Both are evaluated at every version: the
evaluation begins in the tail of a round, and ``hidden`` is what of it took no time of its own.
``--quick`` takes a tiny model and a game. The last line is one JSON object; exits 0 whatever it
shows, and 1 if a job fails.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.demo_overhead import ROOT, quick_model, run_job
from benchmarks.report import clean_up_on_sigterm, commit, goal, machine

GOAL = 1.1
SUMMARIES = (
    "tasks_per_step=6",
    "algorithm.group_size=4",
    "algorithm.minibatches=1",
    "agents.brief.sampling.max_new_tokens=20",
    "agents.detailed.sampling.max_new_tokens=32",
    "limits.episodes_in_flight=2",
    "eval.num_tasks=6",
    "eval.every=1",
)
GAME = (
    "tasks_per_step=16",
    "limits.episodes_in_flight=4",
    "eval.num_tasks=16",
    "eval.every=1",
)


def main() -> int:
    """Run both jobs, compare and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.overlap_job")
    parser.add_argument("--model", type=Path, default=ROOT / "models" / "smollm2")
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="a tiny model and a game")
    args = parser.parse_args()
    clean_up_on_sigterm()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    arms: dict[str, list[dict[str, Any]]] = {}
    with tempfile.TemporaryDirectory(prefix="troupe-overlap-job-") as scratch:
        folder = Path(scratch)
        spec, overrides, model = ROOT / "examples" / "smollm2_summaries.yaml", SUMMARIES, args.model
        if args.quick:
            spec, overrides = ROOT / "examples" / "plan_path_6x6.yaml", GAME
            model = quick_model(folder / "model")
        for overlap in ("false", "true"):
            given = [*overrides, f"steps={args.steps}", f"batch.overlap={overlap}"]
            given.append(f"policies.shared.model={model}")
            lines = run_job(spec, given, folder / overlap)
            if lines is None:
                return 1
            arms[overlap] = lines
            print(json.dumps({"overlap": overlap, **_arm(lines)}), flush=True)
    print(json.dumps(_report(args, spec, overrides, arms)))
    return 0


def _arm(lines: Sequence[dict[str, Any]]) -> dict[str, float]:
    """Medians of the steps after the first, which also pays for what happens once."""
    steps = [line for line in lines if line["kind"] == "train"][1:]
    evals = [line["wall_s"] for line in lines if line["kind"] == "eval"]
    play = [line["phases"]["generate"] + line["phases"]["env"] for line in steps]
    return {
        "step_s": _median([line["wall_s"] for line in steps]),
        "play_s": _median(play),
        "learn_s": _median([line["phases"]["learn"] for line in steps]),
        "learned_ahead_s": _median([line.get("learned_ahead_s") or 0.0 for line in steps]),
        "evaluation_s": _median(evals),
        "evaluation_hidden_s": _median([line.get("eval_hidden_s") or 0.0 for line in steps]),
        "evaluation_waited_s": _median([line["phases"].get("evaluation", 0.0) for line in steps]),
    }


def _median(values: Sequence[float]) -> float:
    return round(statistics.median(values), 3)


def _report(
    args: argparse.Namespace,
    spec: Path,
    overrides: Sequence[str],
    arms: dict[str, list[dict[str, Any]]],
) -> dict[str, Any]:
    apart, together = _arm(arms["false"]), _arm(arms["true"])
    longer = max(apart["play_s"], apart["learn_s"])
    ratio = round(together["step_s"] / longer, 3)
    return {
        "benchmark": "overlap_job",
        "commit": commit(),
        "machine": machine(),
        "load": os.getloadavg()[0],
        "spec": spec.name,
        "overrides": list(overrides),
        "n": args.steps - 1,
        "without": apart,
        "with": together,
        "without_over_longer": round(apart["step_s"] / longer, 3),
        "goals": [goal("step over the longer of playing and learning", ratio, GOAL, ratio <= GOAL)],
    }


if __name__ == "__main__":
    sys.exit(main())
