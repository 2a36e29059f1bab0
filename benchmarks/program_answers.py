"""How much of a trained Plan-Path team's rise is only longer answers.

Run: ``python -m benchmarks.program_answers RUN_FOLDER``, on the run folder of a job whose
agent program answers Plan-Path once (examples/programs/langgraph_plan_path.yaml). Moves into walls
cost nothing there and a walk ends at the goal, so a longer answer is a better one: the table
compares the answers of the first and the last evaluation with answers of full length that know
nothing of the grid. Reads the run's files alone. The last line is one JSON object.
"""

import argparse
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from random import Random
from statistics import fmean
from typing import Any

from troupe.tasks.family import Split
from troupe_tasks.plan_path import PlanPath, PlanPathParams
from troupe_tasks.plan_path.grid import MOVES
from troupe_tasks.plan_path.text import PLANNER, answer, read_answer

NUM_TRAIN, NUM_CHANGES, NUM_DRAWS = 300, 400, 200


class Grids:
    """Grids of one split, by index, and whether a list of moves solves one."""

    def __init__(self, params: PlanPathParams, split: Split, indices: Sequence[int]) -> None:
        family = PlanPath(params)
        self._environment = family.environment()
        taskset = family.taskset()
        self._starts = {i: self._environment.reset(taskset.task(split, i)) for i in indices}

    def solves(self, index: int, moves: str) -> bool:
        """Whether ``moves`` lead to the goal of grid ``index``."""
        text = answer(PLANNER, moves)
        return self._environment.step(self._starts[index], PLANNER, text).success

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
    if judge["name"] != "plan_path":
        raise SystemExit(f"{run}: the judge is {judge['name']}; give a run judged by plan_path")
    params = PlanPathParams.model_validate(judge.get("params", {}))
    lines = [json.loads(line) for line in (run / "episodes.jsonl").read_text().splitlines()]
    length = params.max_actions
    base, trained = answers_of(lines, 0, length), answers_of(lines, spec["steps"], length)
    test = Grids(params, "test", sorted(base))
    walk = best_walk(Grids(params, "train", range(NUM_TRAIN)), length, num_changes)
    rng = Random("draws")

    def mean_of(moves_of: Callable[[int], str]) -> float:
        return round(fmean(test.share(moves_of) for _ in range(num_draws)), 4)

    return {
        "run": run.name,
        "n": len(base),
        "random": mean_of(lambda _: drawn(rng, length)),
        "walk": round(test.share(lambda _: walk), 4),
        "walk_moves": walk,
        "base": round(test.share(lambda i: base[i]), 4),
        "base_filled": mean_of(lambda i: base[i] + drawn(rng, length - len(base[i]))),
        "trained": round(test.share(lambda i: trained[i]), 4),
        "moves_mean": {
            "base": fmean(map(len, base.values())),
            "trained": fmean(map(len, trained.values())),
        },
    }


def main() -> None:
    """Print the table of benchmarks/results/programs.md."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path, help="run folder of the job")
    found = measure(parser.parse_args().run, num_draws=NUM_DRAWS, num_changes=NUM_CHANGES)
    names = {
        "random": "as many random moves as an answer may have",
        "walk": f"one walk for all grids ({found['walk_moves']})",
        "base": "the base's",
        "base_filled": "the base's, filled up with random moves",
        "trained": "the trained team's",
    }
    print("| answer | solved |\n|---|---|")
    for key, name in names.items():
        print(f"| {name} | {found[key]:.0%} |")
    print(json.dumps(found))


if __name__ == "__main__":
    main()
