"""Arms of training on an agent program, compared at equal sampled tokens, each tuned alike.

Run: ``python -m benchmarks.program_arms follow|router|designed|notes [--tokens 30000]
[--seeds 1,2,3] [--rates 2e-3,5e-3] [--workers 2] [--minutes 9] [--folder build/program_arms]
[--quick]``.
``follow``, which is meant where none is named: an outcome alone, paid at the end of a group chat,
learnt by `follow` and by `grpo`. ``router``: keepers that know different things, asked by a router
seat that learns, by one that does not, or all in turn. ``designed``: one answer, one program, five
answers and a vote, a plan that a model designs with designer, executor or neither frozen
(docs/tasks/designed.md). ``notes``: two writers with a pretrained model, each sentence paid by
itself, learnt in a tree, in whole runs by an act's own pay, by the return, and by imitation; there
what is measured is the worth of a pair, 0 to 1, and not success.

All arms of a question begin with one base model (the head of the question's example says how it is
made; ``--model`` names another one) and play the same tasks, as many a step as make the steps of
all arms about equally long in tokens. Each learning rate is tried once until it has sampled the
budget, and the one with the best success on validation tasks is trained with fresh seeds and plays
the test tasks; with one rate nothing is tuned. ``--minutes`` bounds a call, and the next call goes
on where it ended.

Prints success at the budget (between the evaluations around it, task by task), the difference to
the first arm with the interval of a bootstrap over seeds and tasks, and for ``designed`` the calls
a problem and the operators. The last line is one JSON object.
"""

import argparse
import concurrent.futures
import json
import math
import os
import queue
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import yaml

from benchmarks.budget_runs import BudgetRun
from benchmarks.demo_overhead import quick_model
from benchmarks.learning_report import interval
from benchmarks.program_examples import ROOT
from benchmarks.report import clean_up_on_sigterm, commit, machine

TUNING_SEED = 0
FIRST_PORT = 18_500
TOY: dict[str, Any] = {"folder": "toy", "python": None, "preload": []}
CHAT: dict[str, Any] = {
    "program": "chat:run",
    **TOY,
    "score": None,
    "seats": {
        "solver": {"system": "You are the solver"},
        "verifier": {"system": "You are the verifier", "samples": ["APPROVE", "REVISE"]},
    },
}
FOLLOW = {"kind": "follow", "group_size": 4, "scale": "none", "follow": {"executions": 2}}
GRPO = {"kind": "grpo", "group_size": 8, "scale": "none"}
DESIGN = {
    "kind": "follow",
    "group_size": 4,
    "scale": "none",
    "follow": {"agents": ["designer"], "executions": 2, "goes_on": False},
}


def _fixed(plan: str, tasks: int) -> dict[str, Any]:
    """Every problem gets this plan, and nobody designs."""
    seats = ("executor",)
    return {"params": {"plan": plan}, "algorithm": GRPO, "seats": seats, "tasks": tasks}


def _pair(kind: str, **params: float) -> dict[str, Any]:
    """Two writers, learnt by an algorithm with the example's groups."""
    algorithm = {"kind": kind, "group_size": 6, "minibatches": 2}
    algorithm |= {"params": params} if params else {}
    return {"params": {"program": "writers:run", **TOY}, "algorithm": algorithm}


FIVE = "".join(f"{name} = answer()\n" for name in "abcde") + "f = vote(a, b, c, d, e)"


@dataclass(frozen=True)
class Question:
    """What is compared: changes of an example by arm (``tasks``: of a step), and how.

    ``measure``: of a held-out episode's line, 0 to 1.
    """

    example: str
    arms: dict[str, dict[str, Any]]
    rates: tuple[float, ...] = (2e-3, 5e-3)
    num_tasks: int = 200
    every: int = 6
    measure: str = "is_success"


QUESTIONS = {
    "follow": Question(
        "programs/ag2_plan_path",
        {
            "follow": {"params": CHAT, "algorithm": FOLLOW},
            "grpo": {"params": CHAT, "algorithm": GRPO},
        },
        num_tasks=100,
    ),
    "designed": Question(
        "designed/sums",
        {
            "both learn": {"algorithm": DESIGN},
            "designer frozen": {"algorithm": DESIGN, "frozen": "designer"},
            "executor frozen": {"algorithm": DESIGN, "frozen": "executor"},
            "one answer": _fixed("a = answer()", tasks=64),
            "one program": _fixed("a = program()", tasks=16),
            "five answers and a vote": _fixed(FIVE, tasks=16),
        },
    ),
    "router": Question(
        "programs/routed",
        {
            "router": {"algorithm": GRPO, "tasks": 12},
            "router frozen": {"algorithm": GRPO, "frozen": "router", "tasks": 12},
            "fixed": {
                "params": {"program": "routed:fixed"},
                "algorithm": GRPO,
                "seats": ("zoo", "park", "shed", "port"),
            },
        },
    ),
    "notes": Question(
        "programs/openai_sdk_notes",
        {
            "at_grpo": _pair("at_grpo"),
            "turn_grpo_now": _pair("turn_grpo", gamma=1e-6),
            "grpo": _pair("grpo"),
            "best_of_k": _pair("best_of_k"),
        },
        rates=(3.5e-4, 7e-4),
        num_tasks=80,
        every=4,
        measure="team_return",
    ),
}


def spec_of(
    question: str,
    arm: str,
    seed: int,
    model: str | None = None,
    judge: dict[str, Any] | None = None,
    *,
    rate: float | None = None,
    split: str = "test",
) -> dict[str, Any]:
    """The job of an arm; ``model``, ``judge`` and ``rate`` in the place of the example's."""
    of_question = QUESTIONS[question]
    changes = of_question.arms[arm]
    example = ROOT / "examples" / f"{of_question.example}.yaml"
    document = yaml.safe_load(example.read_text())
    params = document["task"]["params"]
    params |= changes.get("params", {}) | ({"judge": judge} if judge else {})
    if seats := changes.get("seats"):
        if "seats" in params:
            params["seats"] = {seat: params["seats"][seat] for seat in seats}
        document["agents"] = {seat: document["agents"][seat] for seat in seats}
        document["workflow"]["order"] = list(seats)
        used = {agent["policy"] for agent in document["agents"].values()}
        document["policies"] = {p: document["policies"][p] for p in sorted(used)}
    for name, policy in document["policies"].items():
        policy |= {"model": model} if model is not None else {}
        policy["optimizer"] |= {"learning_rate": rate} if rate is not None else {}
        if name == changes.get("frozen"):
            document["policies"][name] = {"model": policy["model"], "frozen": True}
    name = f"{question}-{arm}".replace(" ", "-")
    document.update(name=name, seed=seed, steps=400, algorithm=changes["algorithm"])
    document["tasks_per_step"] = changes.get("tasks", document["tasks_per_step"])
    document["eval"] = {
        "num_tasks": of_question.num_tasks,
        "every": of_question.every,
        "split": split,
    }
    return document


def plans_of(run: BudgetRun) -> dict[str, Any]:
    """Of the newest evaluation, where plans are: readable ones, calls, shares of operators."""
    calls, read = list[float](), list[Mapping[str, float]]()
    step = max((line["step"] for line in run.lines("eval")), default=-1)
    for line in run.evaluated(step):
        last = [c for g in line["groups"] for c in g["candidates"] if c["is_chosen"]][-1]
        info = last.get("info", {})
        if "calls" in info:
            calls.append(info["calls"])
            read += [info["operators"]] if "operators" in info else []
    if not calls:
        return {}
    shares = Counter[str]()
    for operators in read:
        shares.update(operators)
    return {
        "readable": round(len(read) / len(calls), 3),
        "calls": round(fmean(calls), 2),
        "operators": {name: round(n / len(read), 3) for name, n in shares.most_common()},
    }


class Comparison:
    """The arms of a question: their runs, and what is to be trained next."""

    def __init__(self, told: argparse.Namespace) -> None:
        self._told = told
        self._question = QUESTIONS[told.question]
        self._rates = [float(rate) for rate in told.rates.split(",")]
        self._seeds = [int(seed) for seed in told.seeds.split(",")]
        self._names = list(self._question.arms)
        self._ends_at = time.monotonic() + 60.0 * told.minutes
        self._stopped = threading.Event()
        # Two platforms that begin together would find the same ports free.
        self._port_bases = queue.SimpleQueue[int]()
        for worker in range(told.workers):
            self._port_bases.put(FIRST_PORT + 100 * worker)

    def train(self) -> None:
        """Train what is missing: all rates first, then seed by seed, so that a stop is fair."""
        phases = [
            lambda: [self._tuning(name, rate) for name in self._names for rate in self._tried()]
        ]
        phases += [lambda seed=seed: self._chosen(seed) for seed in self._seeds]
        with concurrent.futures.ThreadPoolExecutor(self._told.workers) as pool:
            try:
                for phase in phases:
                    list(pool.map(self._train, phase()))
            finally:
                self._stopped.set()

    def rows(self) -> dict[str, dict[str, Any]]:
        """Arm -> what it came to."""
        rows: dict[str, dict[str, Any]] = {}
        main: dict[int, list[float]] = {}
        for name in self._names:
            rate = self._rate(name)
            tuning = {f"{x:g}": self._success(self._tuning(name, x)) for x in self._tried()}
            row: dict[str, Any] = {"rate": rate, "validation": tuning}
            rows[name] = row
            if rate is None:
                continue
            arms = {seed: self._final(name, rate, seed) for seed in self._seeds}
            found = {seed: self._solved(arm) for seed, arm in arms.items()}
            solved = {seed: tasks for seed, tasks in found.items() if tasks is not None}
            row["seeds"] = {seed: self._about(arms[seed], solved.get(seed)) for seed in arms}
            if not solved:
                continue
            main = main or solved
            shared = [seed for seed in solved if seed in main]
            row["success"] = _interval([solved[seed] for seed in solved])
            if solved is not main and shared:
                row["less"] = _interval(*([of[seed] for seed in shared] for of in (solved, main)))
        return rows

    def _about(self, arm: BudgetRun, solved: Sequence[float] | None) -> dict[str, Any]:
        about: dict[str, Any] = {"curve": arm.curve(), **plans_of(arm)}
        return about | {"success": round(fmean(solved), 3) if solved else None}

    def _tried(self) -> list[float]:
        return self._rates if len(self._rates) > 1 else []

    def _rate(self, name: str) -> float | None:
        """What tuning chose; None before it is over."""
        found = {rate: self._success(self._tuning(name, rate)) for rate in self._tried()}
        known = {rate: success for rate, success in found.items() if success is not None}
        if len(known) < len(found):
            return None
        return max(known, key=lambda rate: known[rate]) if known else self._rates[0]

    def _chosen(self, seed: int) -> list[BudgetRun]:
        rates = {name: self._rate(name) for name in self._names}
        return [self._final(name, rate, seed) for name, rate in rates.items() if rate is not None]

    def _solved(self, arm: BudgetRun) -> list[float] | None:
        return arm.solved(self._told.tokens, self._question.measure)

    def _success(self, arm: BudgetRun) -> float | None:
        solved = self._solved(arm)
        return round(fmean(solved), 3) if solved else None

    def _tuning(self, name: str, rate: float) -> BudgetRun:
        return self._arm(name, rate, TUNING_SEED, "validation")

    def _final(self, name: str, rate: float, seed: int) -> BudgetRun:
        return self._arm(name, rate, seed, "test")

    def _arm(self, name: str, rate: float, seed: int, split: str) -> BudgetRun:
        told = self._told
        document = spec_of(
            told.question, name, seed, told.model, told.judge, rate=rate, split=split
        )
        return BudgetRun(told.folder / f"{document['name']}-{rate:g}-{split}-{seed}", document)

    def _train(self, arm: BudgetRun) -> None:
        left_s = self._ends_at - time.monotonic()
        if arm.is_done(self._told.tokens) or left_s <= 0 or self._stopped.is_set():
            return
        port_base = self._port_bases.get()
        try:
            arm.train(self._told.tokens, left_s, port_base=port_base, stopped=self._stopped)
        finally:
            self._port_bases.put(port_base)


def _interval(own: Sequence[Sequence[float]], other: Sequence[Sequence[float]] = ()) -> list[float]:
    """Mean, or mean difference, of (seeds, tasks) in per cent, with its 95 % interval."""
    values, less = np.array(own), np.array(other) if other else None
    return interval(values, less, maps=range(values.shape[1]))


def parse() -> argparse.Namespace:
    """What is compared, and where the runs are."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("question", nargs="?", choices=QUESTIONS, default=next(iter(QUESTIONS)))
    parser.add_argument("--tokens", type=int, default=30_000, help="sampled by each run")
    parser.add_argument("--seeds", default="1,2,3", help="of the runs that are compared")
    parser.add_argument("--rates", help="learning rates that each arm tries, instead of two")
    parser.add_argument("--workers", type=int, default=1, help="runs at a time")
    parser.add_argument("--minutes", type=float, default=math.inf, help="of training, a call")
    parser.add_argument("--model", help="the base's folder, instead of the example's")
    parser.add_argument("--judge", type=json.loads, help="whose tasks, JSON: the example's judge")
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "program_arms")
    parser.add_argument("--quick", action="store_true", help="1,500 tokens, one rate and seed")
    told = parser.parse_args()
    rates = QUESTIONS[told.question].rates
    if told.quick:
        told.tokens, told.seeds, told.rates = 1_500, "1", f"{rates[-1]:g}"
    told.rates = told.rates or ",".join(f"{rate:g}" for rate in rates)
    told.folder = (told.folder / ("quick" if told.quick else "whole")).absolute()
    return told


def line_of(name: str, row: Mapping[str, Any]) -> str:
    """One line of the table."""
    tried = "; ".join(
        f"{rate}: {'-' if success is None else f'{success:.1%}'}"
        for rate, success in row["validation"].items()
    )
    cells = [name, tried or "not tuned", "" if row["rate"] is None else f"{row['rate']:g}"]
    seeds = row.get("seeds", {}).values()
    for key in ("base", "success"):
        of_key = [
            x["success"] if key == "success" else (x["curve"] or [[0, 0, None]])[0][2]
            for x in seeds
        ]
        cells.append(" / ".join("-" if x is None else f"{x:.0%}" for x in of_key))
    for key in ("success", "less"):
        cells.append("{} ({} to {})".format(*row[key]) if key in row else "")
    cells.append(" / ".join(str(x["curve"][-1][0]) for x in seeds if x["curve"]))
    cells.append(" / ".join(f"{x['calls']}" for x in seeds if "calls" in x))
    return f"| {' | '.join(cells)} |"


def main() -> None:
    """Train what is missing, and print what is there."""
    clean_up_on_sigterm()
    told = parse()
    if told.quick and told.model is None:
        told.model = str(quick_model(told.folder / "model"))
    os.chdir(
        (ROOT / "examples" / QUESTIONS[told.question].example).parent
    )  # its paths are relative
    comparison = Comparison(told)
    comparison.train()
    rows = comparison.rows()
    first = next(iter(rows))
    measure = QUESTIONS[told.question].measure
    print(
        f"Mean {measure} of held-out tasks at {told.tokens} sampled tokens, seeds {told.seeds}.\n"
    )
    print(f"| arm | validation | rate | base | test | mean, % | less {first} | steps | calls |")
    print("|---|---|---|---|---|---|---|---|---|")
    for name, row in rows.items():
        print(line_of(name, row))
    about = {"benchmark": "program_arms", "commit": commit(), "machine": machine()}
    print(json.dumps({**about, "question": told.question, "tokens": told.tokens, "arms": rows}))


if __name__ == "__main__":
    main()
