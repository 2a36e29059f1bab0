"""How much of a trained Plan-Path team's rise is only longer answers.

Run: ``python -m benchmarks.program_answers RUN_FOLDER``, on the run folder of a job whose
agent program answers Plan-Path once (examples/programs/langgraph_plan_path.yaml). Moves into walls
cost nothing there and a walk ends at the goal, so a longer answer is a better one: the table
compares the answers of the first and the last evaluation with answers of full length that know
nothing of the grid. Reads the run's files alone. The last line is one JSON object.
"""

import argparse
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from random import Random
from statistics import fmean
from typing import Any

from benchmarks.program_examples import EXAMPLES
from troupe.tasks.family import Split
from troupe.tasks.registry import load_family
from troupe_tasks.plan_path import PlanPath, PlanPathParams
from troupe_tasks.plan_path.grid import MOVES
from troupe_tasks.plan_path.text import PLANNER, answer, read_answer

NUM_TRAIN, NUM_CHANGES, NUM_DRAWS = 300, 400, 200


class Grids:
    """Grids of one split, by index, and whether a list of moves solves one."""

    def __init__(self, family: PlanPath, split: Split, indices: Sequence[int]) -> None:
        self._environment = family.environment()
        taskset = family.taskset()
        self._starts = {i: self._environment.reset(taskset.task(split, i)) for i in indices}

    def solves(self, index: int, moves: str) -> bool:
        """Whether ``moves`` lead to the goal of grid ``index``."""
        text = answer(PLANNER, moves)
        return self._environment.step(self._starts[index], PLANNER, text).success

    def begins_well(self, index: int, moves: str) -> bool:
        """Whether the first of ``moves`` leads nearer to the goal of grid ``index``."""
        text = answer(PLANNER, moves[:1])
        return self._environment.step(self._starts[index], PLANNER, text).local_rewards["legal"] > 0

    def share_begun_well(self, moves_of: Callable[[int], str]) -> float:
        """Share of the grids on which the first move that is given leads nearer to the goal."""
        return fmean(self.begins_well(index, moves_of(index)) for index in self._starts)

    def share(self, moves_of: Callable[[int], str]) -> float:
        """Share of the grids that are solved by the moves that are given for each."""
        return fmean(self.solves(index, moves_of(index)) for index in self._starts)


def answers_of(lines: Sequence[Mapping[str, Any]], step: int, length: int) -> dict[int, str]:
    """The moves of the team's answer in the evaluation after ``step`` steps, by test grid."""
    answers: dict[int, str] = {}
    for line in lines:
        if line["kind"] == "eval" and line["step"] == step:
            chosen = [c for c in line["groups"][-1]["candidates"] if c["is_chosen"]]
            text = chosen[-1].get("info", {}).get("answer", "")
            index = int(line["task_id"].rpartition("/")[2])
            answers[index] = read_answer(PLANNER, text, length).moves
    return answers


def drawn(rng: Random, count: int) -> str:
    """Random moves."""
    return "".join(rng.choices(tuple(MOVES), k=count))


def best_walk(grids: Grids, length: int, num_changes: int) -> str:
    """One walk for all grids, climbed to by changing a move at a time."""
    rng = Random("walk")
    walk = drawn(rng, length)
    solved = grids.share(lambda _: walk)
    for _ in range(num_changes):
        at = rng.randrange(length)
        changed = walk[:at] + drawn(rng, 1) + walk[at + 1 :]
        share = grids.share(lambda _, moves=changed: moves)
        if share >= solved:
            walk, solved = changed, share
    return walk


def measure(run: Path, *, num_draws: int, num_changes: int) -> dict[str, Any]:
    """Share of the test grids that each kind of answer solves."""
    spec = json.loads((run / "spec.json").read_text())
    judge = spec["task"]["params"]["judge"]
    family = load_family(judge["name"], judge.get("params", {}))
    if not isinstance(family, PlanPath):
        raise SystemExit(f"{run}: the judge is {judge['name']}; give a run judged by plan_path")
    lines = [json.loads(line) for line in (run / "episodes.jsonl").read_text().splitlines()]
    length = PlanPathParams.model_validate(judge.get("params", {})).max_actions
    last = max(line["step"] for line in lines if line["kind"] == "eval")
    base, trained = answers_of(lines, 0, length), answers_of(lines, last, length)
    split = spec.get("eval", {}).get("split", "test")
    held_out = Grids(family, split, sorted(base))
    walk = best_walk(Grids(family, "train", range(NUM_TRAIN)), length, num_changes)
    rng = Random("draws")

    def mean_of(moves_of: Callable[[int], str]) -> float:
        return round(fmean(held_out.share(moves_of) for _ in range(num_draws)), 4)

    return {
        "run": run.name,
        "steps": last,
        "n": len(base),
        "random": mean_of(lambda _: drawn(rng, length)),
        "walk": round(held_out.share(lambda _: walk), 4),
        "walk_moves": walk,
        "base": round(held_out.share(lambda i: base[i]), 4),
        "base_filled": mean_of(lambda i: base[i] + drawn(rng, length - len(base[i]))),
        "base_as_long": mean_of(lambda i: base[i] + drawn(rng, len(trained[i]) - len(base[i]))),
        "trained": round(held_out.share(lambda i: trained[i]), 4),
        "trained_cut": round(held_out.share(lambda i: trained[i][: len(base[i])]), 4),
        "first_move": {
            "random": round(fmean(held_out.share_begun_well(lambda _, m=m: m) for m in MOVES), 4),
            "base": round(held_out.share_begun_well(lambda i: base[i]), 4),
            "trained": round(held_out.share_begun_well(lambda i: trained[i]), 4),
        },
        "moves_mean": {
            "base": fmean(map(len, base.values())),
            "trained": fmean(map(len, trained.values())),
        },
    }


def main() -> None:
    """Print the table of benchmarks/results/programs.md."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path, help="run folder of the job")
    sys.path.insert(0, str(EXAMPLES))  # a judge that lies there
    found = measure(parser.parse_args().run, num_draws=NUM_DRAWS, num_changes=NUM_CHANGES)
    names = {
        "random": "as many random moves as an answer may have",
        "walk": f"one walk for all grids ({found['walk_moves']})",
        "base": "the base's",
        "base_filled": "the base's, filled up with random moves",
        "base_as_long": "the base's, filled up to the trained team's number of moves",
        "trained": "the trained team's",
        "trained_cut": "the trained team's, cut to as many moves as the base's",
    }
    print("| answer | solved |\n|---|---|")
    for key, name in names.items():
        print(f"| {name} | {found[key]:.0%} |")
    begun = ", ".join(f"{name} {share:.0%}" for name, share in found["first_move"].items())
    print(f"\nThe first move leads nearer to the goal: {begun}")
    print(json.dumps(found))


if __name__ == "__main__":
    main()
