"""What a run with a pretrained model changed: each evaluation of a run folder, with intervals.

Run: ``python -m benchmarks.real_model RUN_FOLDER``, after ``troupe train
examples/smollm2_summaries.yaml``. It starts nothing and reads ``episodes.jsonl``: a return is the
judge's own. Intervals of means are mean +- 1.96 standard errors over tasks; the change is taken
task by task, because every evaluation plays the same tasks; success has Wilson's interval. The last
line is one JSON object.
"""

import argparse
import json
import math
import statistics
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.report import commit, machine
from troupe.evaluation.estimators import wilson

Z = 1.96


def evaluations(run: Path) -> dict[int, dict[str, Any]]:
    """Step -> task -> the episode's record, of every evaluation of the run."""
    rounds: dict[int, dict[str, Any]] = defaultdict(dict)
    with (run / "episodes.jsonl").open(encoding="utf-8") as lines:
        for line in lines:
            episode = json.loads(line)
            if episode["kind"] == "eval":
                rounds[episode["step"]][episode["task_id"]] = episode
    return dict(sorted(rounds.items()))


def mean_of(values: Sequence[float]) -> list[float]:
    """Mean, and the ends of its 95 % interval."""
    mean = statistics.fmean(values)
    half = Z * statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else math.inf
    return [round(x, 4) for x in (mean, mean - half, mean + half)]


def row_of(step: int, played: dict[str, Any]) -> dict[str, Any]:
    """One evaluation."""
    episodes = list(played.values())
    chosen = [c for e in episodes for g in e["groups"] for c in g["candidates"] if c["is_chosen"]]
    solved = sum(e["is_success"] for e in episodes)
    low, high = wilson(solved / len(episodes), len(episodes))
    ratios = [c["info"]["ratio"] for c in chosen if "ratio" in c["info"]]
    return {
        "step": step,
        "tasks": len(episodes),
        "return": mean_of([e["team_return"] for e in episodes]),
        "success": [round(x, 4) for x in (solved / len(episodes), low, high)],
        "truncated": round(statistics.fmean(c["is_truncated"] for c in chosen), 4),
        "median_ratio": round(statistics.median(ratios), 3) if ratios else None,
        "tokens_an_answer": round(statistics.fmean(c["num_tokens"] for c in chosen), 1),
    }


def change_of(before: dict[str, Any], after: dict[str, Any]) -> list[float]:
    """Mean change of the return over the tasks that both played, and its interval."""
    both = sorted(before.keys() & after.keys())
    return mean_of([after[t]["team_return"] - before[t]["team_return"] for t in both])


def main() -> None:
    """Read and print."""
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m benchmarks.real_model")
    parser.add_argument("run", type=Path, help="run folder")
    parser.add_argument("--texts", type=int, default=0, help="also print texts of so many tasks")
    args = parser.parse_args()
    rounds = evaluations(args.run)
    rows = [row_of(step, played) for step, played in rounds.items()]
    for row in rows:
        print(json.dumps(row))
    for task in list(next(iter(rounds.values()), {}))[: args.texts]:
        for step, played in rounds.items():
            for group in played[task]["groups"]:
                [text] = [c["text"] for c in group["candidates"] if c["is_chosen"]]
                print(f"{task} after {step} steps, {group['agent']}: {text!r}")
    steps = list(rounds)
    change = change_of(rounds[steps[0]], rounds[steps[-1]]) if len(steps) > 1 else None
    result = {
        "benchmark": "real_model",
        "commit": commit(),
        "machine": machine(),
        "run": args.run.name,
        "rows": rows,
        "change_of_return": change,
        "has_learnt": bool(change and change[1] > 0),
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
