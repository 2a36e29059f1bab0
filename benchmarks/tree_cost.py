"""Why a tree's sampled tokens cost less CPU time than those of whole episodes: parts of the cost.

Run: ``python -m benchmarks.tree_cost [--quick]``. The base of ``benchmarks.learning_curve``'s
``guided_walk`` is trained for some steps by each of four arms of equal K, tasks a step and learning
rate, one after the other, by the whole local platform: whole episodes (``turn_grpo_act``), the tree
(``at_grpo_random``), and both with the groups kept that have no difference to learn from
(``every_group``). Of the steps after the first two, by thousand sampled tokens: draws (each reads
its prompt once), tokens that were learned from, seconds of playing and of learning, and the CPU
time of each service. The last line is one JSON object; exits 0 whatever it shows.
"""

import argparse
import dataclasses
import json
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.budget_runs import BudgetRun
from benchmarks.learning_arms import ARMS, TASKS, Arm, Setting, spec_of
from benchmarks.learning_cells import make_model
from benchmarks.processes import cpu_s, family, name_of
from benchmarks.report import clean_up_on_sigterm, commit, machine

TASK = TASKS["guided_walk"]
SETTING = Setting(5e-4, 8)
"""Tuned for both arms by ``benchmarks.learning_curve``."""
WARM_UP = 2
"""Steps that are left out: they compile and fill caches."""
PORT_BASE = 18_400
TIMEOUT_S = 900.0
SERVICES = {
    "troupe_rollout": "rollout",
    "troupe_trainer": "trainer",
    "troupe_env": "env",
    "troupe_router": "router",
}


def _every_group(arm: Arm) -> Arm:
    return dataclasses.replace(arm, own={**arm.own, "filters": {"zero_variance": False}})


WHOLE, TREE = ARMS["turn_grpo_act"], ARMS["at_grpo_random"]
COMPARED = {
    "whole episodes": WHOLE,
    "whole episodes, every_group": _every_group(WHOLE),
    "tree": TREE,
    "tree, every_group": _every_group(TREE),
}


class Marks:
    """CPU seconds by process, at the end of the warm-up and at the newest end of a step."""

    def __init__(self, run: BudgetRun) -> None:
        self._run = run
        self.names: dict[int, str] = {}
        self.at: dict[int, dict[int, float]] = {}

    def look(self, pid: int) -> None:
        """Called some times a second: a mark belongs to the steps that were done when it was set.

        Raises nothing where the run ends meanwhile.
        """
        done = len(self._run.lines("train"))
        if done < WARM_UP or done in self.at:
            return
        try:
            members = family(pid)
            self.at[done] = {member: cpu_s(member) for member in members}
            self.names |= {member: name_of(member) for member in members}
        except (OSError, IndexError):
            self.at.pop(done, None)

    def between(self) -> tuple[int, int, dict[str, float]]:
        """The first and the last mark's steps, and the CPU seconds between them by service."""
        first, last = min(self.at), max(self.at)
        by_service = dict.fromkeys([*SERVICES.values(), "other"], 0.0)
        for pid, spent in self.at[last].items():
            service = SERVICES.get(self.names[pid].split(".")[0], "other")
            by_service[service] += spent - self.at[first].get(pid, 0.0)
        return first, last, by_service


def measured(arm: Arm, model: Path, folder: Path, steps: int) -> dict[str, Any]:
    """The figures of one arm, by thousand sampled tokens where they are amounts."""
    document = spec_of(arm.algorithm, arm, TASK, model, SETTING, 0, steps=steps, eval_tasks=1)
    del document["eval"]
    run = BudgetRun(folder, document)
    marks = Marks(run)
    status = run.train(float("inf"), TIMEOUT_S, port_base=PORT_BASE, watch=marks.look)
    if status or len(marks.at) < 2:
        raise SystemExit(f"the job failed: {(folder / 'train.log').read_text()[-4000:]}")
    first, last, cpu = marks.between()
    lines = [line for line in run.lines("train") if first <= line["step"] < last]
    thousands = sum(line["num_tokens"] for line in lines) / 1000

    def amount(name: str) -> float:
        return sum(line[name] for line in lines) / thousands

    def phase(name: str) -> float:
        return sum(line["phases"][name] for line in lines) / thousands

    trained, flat = (
        sum(line[name] for line in lines) for name in ("groups_trained", "groups_zero_variance")
    )
    return {
        "steps": last - first,
        "sampled_tokens": round(1000 * thousands),
        "draws": round(amount("num_draws"), 1),
        "trained_tokens": round(amount("trained_tokens")),
        "groups_without_difference": round(flat / max(1, trained + flat), 3),
        "generate_s": round(phase("generate"), 3),
        "learn_s": round(phase("learn"), 3),
        "cpu_s": {name: round(spent / thousands, 3) for name, spent in cpu.items()},
        "cpu_s_in_all": round(sum(cpu.values()) / thousands, 3),
    }


def main() -> None:
    """Measure the four and print."""
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m benchmarks.tree_cost")
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--quick", action="store_true", help="6 steps")
    args = parser.parse_args()
    clean_up_on_sigterm()
    steps = 6 if args.quick else args.steps
    began = time.monotonic()
    arms: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="troupe-tree-cost-") as scratch:
        model = make_model(TASK, Path(scratch))
        for number, (name, arm) in enumerate(COMPARED.items()):
            arms[name] = measured(arm, model, Path(scratch) / str(number), steps)
            print(name, json.dumps(arms[name]), flush=True)
    whole = arms["whole episodes"]["cpu_s_in_all"]
    result = {
        "benchmark": "tree_cost",
        "commit": commit(),
        "machine": machine(),
        "wall_s": round(time.monotonic() - began, 1),
        "n": 1,
        "arms": arms,
        "cpu_over_whole_episodes": {
            name: round(arm["cpu_s_in_all"] / whole, 3) for name, arm in arms.items()
        },
        "goals": [],
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
