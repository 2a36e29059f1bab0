"""A real job that learns while its rounds are played, beside the same job that does not.

Run: ``python -m benchmarks.overlap_job [--evaluations none] [--quick]``. All four services on this
machine, one thread each: SmolLM2-135M (``troupe model fetch smollm2 --to models/smollm2``) writes
and learns the summaries of examples/smollm2_summaries.yaml, two tickets at once, so that their
gradients can be summed while the others are written. Steps of the job with ``batch.overlap`` are
set against its longest phase in the one without: what the engine does (playing and evaluating, on
one core) or learning (on the other); nothing pins them, each computes on one thread. Two pairs:
without evaluations, and with one of every version, which begins in the tail of a round; ``hidden``
is what of it took no time of its own. ``phases`` are all of a step's, ``other`` is what none of the
others names, and ``processes`` what each computed, and waited for a core, in a step. ``--quick``
takes a tiny model and a game. The last line is one JSON object; exits 0 whatever it shows, and 1 if
a job fails.
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
from benchmarks.step_times import StepTimes

GOAL = 1.1
SUMMARIES = (
    "tasks_per_step=32",
    "algorithm.group_size=4",
    "algorithm.minibatches=1",
    "agents.brief.sampling.max_new_tokens=20",
    "agents.detailed.sampling.max_new_tokens=32",
    "limits.episodes_in_flight=2",
    "eval.num_tasks=6",
)
GAME = (
    "tasks_per_step=16",
    "limits.episodes_in_flight=4",
    "eval.num_tasks=16",
)
EVALUATIONS = {"none": "eval.every=1000", "every version": "eval.every=1"}
"""The first and the last version are evaluated always, outside the steps that are measured."""


def main() -> int:
    """Run both jobs, compare and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.overlap_job")
    parser.add_argument("--model", type=Path, default=ROOT / "models" / "smollm2")
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--evaluations", choices=EVALUATIONS, help="only this pair of jobs")
    parser.add_argument("--quick", action="store_true", help="a tiny model and a game")
    args = parser.parse_args()
    clean_up_on_sigterm()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    pairs: dict[str, dict[str, dict[str, Any]]] = {}
    with tempfile.TemporaryDirectory(prefix="troupe-overlap-job-") as scratch:
        folder = Path(scratch)
        spec, overrides, model = ROOT / "examples" / "smollm2_summaries.yaml", SUMMARIES, args.model
        if args.quick:
            spec, overrides = ROOT / "examples" / "plan_path_6x6.yaml", GAME
            model = quick_model(folder / "model")
        for evaluations, every in EVALUATIONS.items():
            if args.evaluations not in (None, evaluations):
                continue
            pairs[evaluations] = {}
            for arm, overlap in (("without", "false"), ("with", "true")):
                given = [*overrides, every, f"steps={args.steps}", f"batch.overlap={overlap}"]
                given.append(f"policies.shared.model={model}")
                times = StepTimes(folder / every / arm)
                with times.during():
                    lines = run_job(spec, given, folder / every / arm)
                if lines is None:
                    return 1
                measured = _arm(lines, evaluated=evaluations != "none")
                pairs[evaluations][arm] = measured | {"processes": times.per_step()}
                line = {"evaluations": evaluations, "overlap": overlap}
                print(json.dumps({**line, **pairs[evaluations][arm]}), flush=True)
    print(json.dumps(_report(args, spec, overrides, pairs)))
    return 0


def _arm(lines: Sequence[dict[str, Any]], *, evaluated: bool) -> dict[str, Any]:
    """Medians of the steps after the first, which also pays for what happens once."""
    steps = [line for line in lines if line["kind"] == "train"][1:]
    evals = [line["wall_s"] for line in lines if line["kind"] == "eval"]
    play = [line["phases"]["generate"] + line["phases"]["env"] for line in steps]
    phases = {
        name: _median([line["phases"].get(name, 0.0) for line in steps])
        for name in sorted({name for line in steps for name in line["phases"]})
    }
    return {
        "step_s": _median([line["wall_s"] for line in steps]),
        "phases": phases,
        "waited_s": _median([line.get("waited_s") or 0.0 for line in steps]),
        "stage_s": _median([line.get("stage_s") or 0.0 for line in steps]),
        "activate_s": _median([line.get("activate_s") or 0.0 for line in steps]),
        "play_s": _median(play),
        "learn_s": _median([line["phases"]["learn"] for line in steps]),
        "learned_ahead_s": _median([line.get("learned_ahead_s") or 0.0 for line in steps]),
        "evaluation_s": _median(evals) if evaluated else 0.0,
        "evaluation_hidden_s": _median([line.get("eval_hidden_s") or 0.0 for line in steps]),
        "evaluation_waited_s": _median([line["phases"].get("evaluation", 0.0) for line in steps]),
    }


def _median(values: Sequence[float]) -> float:
    return round(statistics.median(values), 3)


def _report(
    args: argparse.Namespace,
    spec: Path,
    overrides: Sequence[str],
    pairs: dict[str, dict[str, dict[str, Any]]],
) -> dict[str, Any]:
    goals: list[dict[str, Any]] = []
    for evaluations, pair in pairs.items():
        apart = pair["without"]
        longest = max(apart["play_s"] + apart["evaluation_s"], apart["learn_s"])
        for arm in pair.values():
            arm["over_longest"] = round(arm["step_s"] / longest, 3)
        ratio = pair["with"]["over_longest"]
        name = f"evaluations: {evaluations}: step over its longest phase"
        goals.append(goal(name, ratio, GOAL, ratio <= GOAL))
    return {
        "benchmark": "overlap_job",
        "commit": commit(),
        "machine": machine(),
        "load": os.getloadavg()[0],
        "spec": spec.name,
        "overrides": list(overrides),
        "n": args.steps - 1,
        "evaluations": pairs,
        "goals": goals,
    }


if __name__ == "__main__":
    sys.exit(main())
