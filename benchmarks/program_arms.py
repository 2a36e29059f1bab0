"""Arms of training on an agent program, compared at equal sampled tokens, each tuned alike.

Run: ``python -m benchmarks.program_arms follow|router|designed|notes [--tokens 30000]
[--seeds 1,2,3,4] [--rates 2e-3,5e-3] [--workers 2] [--minutes 9] [--folder build/program_arms]
[--quick]``.
``follow``, which is meant where none is named: an outcome alone, paid at the end of a group chat,
learnt by `follow` and by `grpo`. ``router``: keepers that know different things, asked by a router
seat that learns, by one that does not, or all in turn. ``designed``: one answer, one program, five
answers and a vote, a plan that a model designs with designer, executor or neither frozen
(docs/tasks/designed.md). ``notes``: two writers with a pretrained model, each sentence paid by
itself, learnt in a tree, in whole runs by an act's own pay, in whole runs by the pair's worth
alone, and by imitating the best of a tree; there what is measured is the worth of a pair, 0 to 1,
and not success.

All arms of a question begin with one base model (the head of the question's example says how it is
made; ``--model`` names another one) and play the same tasks, so many a step that the base's steps
have similar numbers of tokens in all arms. Each learning rate is tried once until it has sampled
the budget, and the one with the best success on validation tasks is trained with fresh seeds and
plays the test tasks; with one rate nothing is tuned. ``--minutes`` bounds a call, and the next call
goes on where it ended.

Prints success at the budget (between the evaluations around it, task by task), the difference to
the first arm with an interval over seeds and tasks, and for ``designed`` the calls
a problem and the operators. The last line is one JSON object.
"""

import argparse
import json
import math
import os
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from benchmarks.budget_runs import BudgetRun, RunPool
from benchmarks.demo_overhead import quick_model
from benchmarks.intervals import interval, sign_flip
from benchmarks.learning_cells import base_digest
from benchmarks.program_examples import ROOT
from benchmarks.program_questions import QUESTIONS, spec_of
from benchmarks.report import clean_up_on_sigterm, commit, machine

TUNING_SEED = 0
FIRST_PORT = 18_500


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
        # Runs from another base are other runs.
        self._base = (base_digest(base_of(told)) or "none")[:8]
        self._pool = RunPool(told.workers, told.port_base, told.minutes)

    def train(self) -> None:
        """Train what is missing: all rates first, then seed by seed, so that a stop is fair."""
        phases = [
            lambda: [self._tuning(name, rate) for name in self._names for rate in self._tried()]
        ]
        phases += [lambda seed=seed: self._chosen(seed) for seed in self._seeds]
        self._pool.play(phases, self._train)

    def rows(self) -> dict[str, dict[str, Any]]:
        """Arm -> what it came to."""
        rows: dict[str, dict[str, Any]] = {}
        solved: dict[str, dict[int, dict[str, float]]] = {}
        for name in self._names:
            rate = self._rate(name)
            tuning = {f"{x:g}": self._success(self._tuning(name, x)) for x in self._tried()}
            row: dict[str, Any] = {"rate": rate, "validation": tuning}
            rows[name] = row
            if rate is None:
                continue
            arms = {seed: self._final(name, rate, seed) for seed in self._seeds}
            row["seeds"] = {seed: self._about(arm) for seed, arm in arms.items()}
            found = {seed: self._solved(arm) for seed, arm in arms.items()}
            solved[name] = {seed: tasks for seed, tasks in found.items() if tasks is not None}
        main = solved.get(self._names[0], {})
        for name, of_arm in solved.items():
            rows[name] |= {"success": _interval(of_arm)} if of_arm else {}
            if name != self._names[0] and (shared := of_arm.keys() & main.keys()):
                own, other = ({seed: x[seed] for seed in sorted(shared)} for x in (of_arm, main))
                rows[name]["less"] = _interval(own, other)
                differences = [
                    fmean(own[seed].values()) - fmean(other[seed].values()) for seed in own
                ]
                rows[name]["p"] = round(sign_flip(differences), 3)
        return rows

    def _about(self, arm: BudgetRun) -> dict[str, Any]:
        about = {"base": self._success(arm, 0), "success": self._success(arm)}
        about["steps"] = arm.steps_at(self._told.tokens)
        curve = [[step, tokens, self._success(arm, tokens)] for step, tokens, _ in arm.curve()]
        return about | {"curve": curve} | plans_of(arm)

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

    def _solved(self, arm: BudgetRun, tokens: int | None = None) -> dict[str, float] | None:
        """At the budget, or at ``tokens``."""
        budget = self._told.tokens if tokens is None else tokens
        return arm.solved(budget, self._question.measure)

    def _success(self, arm: BudgetRun, tokens: int | None = None) -> float | None:
        solved = self._solved(arm, tokens)
        return round(fmean(solved.values()), 3) if solved else None

    def _tuning(self, name: str, rate: float) -> BudgetRun:
        return self._arm(name, rate, TUNING_SEED, "validation")

    def _final(self, name: str, rate: float, seed: int) -> BudgetRun:
        return self._arm(name, rate, seed, "test")

    def _arm(self, name: str, rate: float, seed: int, split: str) -> BudgetRun:
        told = self._told
        document = spec_of(
            told.question, name, seed, told.model, told.judge, rate=rate, split=split
        )
        name = f"{document['name']}-{rate:g}-{split}-{seed}-{self._base}"
        return BudgetRun(told.folder / name, document)

    def _train(self, arm: BudgetRun, port_base: int) -> None:
        pool, tokens = self._pool, self._told.tokens
        if arm.is_done(tokens):
            return
        arm.train(tokens, pool.left_s(), port_base=port_base, stopped=pool.stopped)
        if not arm.is_done(tokens) and pool.left_s():
            print(f"ended before its budget: {arm.folder / 'train.log'}", file=sys.stderr)


def _interval(
    own: Mapping[int, Mapping[str, float]], other: Mapping[int, Mapping[str, float]] | None = None
) -> list[float]:
    """Mean, or mean difference, of seed -> task -> value, in per cent, with its 95 % interval."""
    every = [*own.values(), *(other or {}).values()]
    tasks = sorted(set(every[0]).intersection(*every[1:]))
    first, second = (
        np.array([[of[t] for t in tasks] for of in (x or {}).values()]) for x in (own, other)
    )
    return interval(first, second if other else None, maps=range(len(tasks)))


def base_of(told: argparse.Namespace) -> Path:
    """The base model's folder."""
    arm = next(iter(QUESTIONS[told.question].arms))
    policies = spec_of(told.question, arm, 0, told.model)["policies"]
    return Path(next(iter(policies.values()))["model"])


def parse() -> argparse.Namespace:
    """What is compared, and where the runs are."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("question", nargs="?", choices=QUESTIONS, default=next(iter(QUESTIONS)))
    parser.add_argument("--tokens", type=int, default=30_000, help="sampled by each run")
    parser.add_argument("--seeds", default="1,2,3,4", help="of the runs that are compared")
    parser.add_argument(
        "--rates", help="learning rates that each arm tries, instead of the question's"
    )
    parser.add_argument("--workers", type=int, default=1, help="runs at a time")
    parser.add_argument("--minutes", type=float, default=math.inf, help="of training, a call")
    parser.add_argument(
        "--port-base", type=int, default=FIRST_PORT, help="another for a second call"
    )
    parser.add_argument("--model", help="the base's folder, instead of the example's")
    parser.add_argument("--judge", type=json.loads, help="whose tasks, JSON: the example's judge")
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "program_arms")
    parser.add_argument("--quick", action="store_true", help="1,500 tokens, one rate and seed")
    told = parser.parse_args()
    rates = QUESTIONS[told.question].rates
    if told.quick:
        told.tokens, told.seeds, told.rates = 1_500, "1", f"{rates[-1]:g}"
    told.rates = told.rates or ",".join(f"{rate:g}" for rate in rates)
    # Runs begin in the folder of the question's example.
    told.model = told.model and str(Path(told.model).absolute())
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
        cells.append(" / ".join("-" if x[key] is None else f"{x[key]:.0%}" for x in seeds))
    for key in ("success", "less"):
        cells.append("{} ({} to {})".format(*row[key]) if key in row else "")
    cells.append(str(row.get("p", "")))
    cells.append(" / ".join(str(x["steps"]) for x in seeds))
    cells.append(" / ".join(f"{x['calls']}" for x in seeds if "calls" in x))
    return f"| {' | '.join(cells)} |"


def main() -> None:
    """Train what is missing, and print what is there."""
    clean_up_on_sigterm()
    told = parse()
    if told.quick and told.model is None:
        told.model = str(quick_model(told.folder / "model"))
    question = QUESTIONS[told.question]
    os.chdir((ROOT / "examples" / question.example).parent)  # its paths are relative
    comparison = Comparison(told)
    comparison.train()
    rows = comparison.rows()
    first = next(iter(rows))
    print(f"Mean {question.measure} of held-out tasks at {told.tokens} sampled tokens.\n")
    print(f"| arm | validation | rate | base | test | mean, % | less {first} | p | steps | calls |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    for name, row in rows.items():
        print(line_of(name, row))
    about = {"benchmark": "program_arms", "commit": commit(), "machine": machine()}
    print(json.dumps({**about, "question": told.question, "tokens": told.tokens, "arms": rows}))


if __name__ == "__main__":
    main()
