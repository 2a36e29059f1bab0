"""Arms of training on an agent program, compared at equal sampled tokens.

Run: ``python -m benchmarks.program_arms follow|router|designed [--tokens 60000] [--seeds 0,1]
[--minutes 9] [--folder build/program_arms] [--quick]``. ``follow``, which is meant where none is
named: an outcome alone, paid at the end of a group chat, learnt by `follow` and by `grpo`.
``router``: keepers that know different things, asked by a router seat that learns, by one that
does not, or all in turn. ``designed``: one answer, one program, five answers and a vote, a plan
that a model designs with designer, executor or neither frozen (docs/tasks/designed.md).

All arms of a question begin with one base model (the head of the question's example says how it is
made; ``--model`` names another one) and play the same tasks. An arm is trained
until it has sampled the tokens; ``--minutes`` bounds a call, and the next call goes on where it
ended. Prints success on the same held-out tasks (100; 200 of ``designed`` and ``router``) at the
budget, with Wilson's interval of the evaluation after it, and for ``designed`` the calls a problem
and the operators. The last line is one JSON object.
"""

import argparse
import json
import math
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from statistics import fmean
from typing import Any

import yaml

from benchmarks.demo_overhead import quick_model
from benchmarks.program_examples import ROOT
from benchmarks.report import commit, machine
from troupe.evaluation.estimators import wilson

EVERY, TASKS = 4, {"follow": 100, "router": 200, "designed": 200}
END_S = 120.0
CHAT: dict[str, Any] = {
    "program": "chat:run",
    "folder": "toy",
    "python": None,
    "preload": [],
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
FIVE = "".join(f"{name} = answer()\n" for name in "abcde") + "f = vote(a, b, c, d, e)"
QUESTIONS: dict[str, tuple[str, dict[str, dict[str, Any]]]] = {
    "follow": (
        "programs/ag2_plan_path",
        {
            "follow": {"params": CHAT, "algorithm": FOLLOW},
            "grpo": {"params": CHAT, "algorithm": GRPO},
        },
    ),
    "designed": (
        "designed/sums",
        {
            "one answer": {
                "params": {"plan": "a = answer()"},
                "algorithm": GRPO,
                "seats": ("executor",),
            },
            "one program": {
                "params": {"plan": "a = program()"},
                "algorithm": GRPO,
                "seats": ("executor",),
            },
            "five answers and a vote": {
                "params": {"plan": FIVE},
                "algorithm": GRPO,
                "seats": ("executor",),
            },
            "designer frozen": {"algorithm": DESIGN, "frozen": "designer"},
            "executor frozen": {"algorithm": DESIGN, "frozen": "executor"},
            "both learn": {"algorithm": DESIGN},
        },
    ),
    "router": (
        "programs/routed",
        {
            "router": {"algorithm": GRPO},
            "router frozen": {"algorithm": GRPO, "frozen": "router"},
            "fixed": {
                "params": {"program": "routed:fixed"},
                "algorithm": GRPO,
                "seats": ("zoo", "park", "shed", "port"),
            },
        },
    ),
}
"""Question -> the example that it changes, and each arm's changes."""


def spec_of(
    question: str, arm: str, seed: int, model: str | None, judge: dict[str, Any] | None
) -> dict[str, Any]:
    """The job of an arm; ``judge`` in the place of the example's."""
    example, arms = QUESTIONS[question]
    changes = arms[arm]
    document = yaml.safe_load((ROOT / "examples" / f"{example}.yaml").read_text())
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
        if name == changes.get("frozen"):
            document["policies"][name] = {"model": policy["model"], "frozen": True}
    name = f"{question}-{arm}".replace(" ", "-")
    document.update(name=name, seed=seed, steps=400, algorithm=changes["algorithm"])
    document["eval"] = {"num_tasks": TASKS[question], "every": EVERY}
    return document


class Arm:
    """One run of training, in one folder, which later calls go on with."""

    def __init__(self, folder: Path, document: Mapping[str, Any]) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.num_tasks: int = document["eval"]["num_tasks"]
        self.spec = folder / "spec.yaml"
        self.spec.write_text(yaml.safe_dump(dict(document)))

    def lines(self, kind: str) -> list[dict[str, Any]]:
        """Of the run's metrics so far."""
        files = list(self.folder.glob("runs/*/metrics.jsonl"))
        text = files[0].read_text("utf-8") if files else ""
        found = [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]
        return [line for line in found if line["kind"] == kind]

    def tokens(self, steps: float = math.inf) -> int:
        """Sampled in the first ``steps`` steps."""
        by_step = {line["step"]: line["num_tokens"] for line in self.lines("train")}
        return sum(number for step, number in by_step.items() if step < steps)

    def curve(self) -> list[tuple[int, int, float]]:
        """Steps, tokens and held-out success at each evaluation."""
        evals = {line["step"]: line["success"] for line in self.lines("eval")}
        return [(step, self.tokens(step), success) for step, success in sorted(evals.items())]

    def plans(self) -> dict[str, Any]:
        """Of the newest evaluation, where plans are: readable ones, calls, shares of operators."""
        calls, read = list[float](), list[Mapping[str, float]]()
        steps = {line["step"] for line in self.lines("eval")}
        files = list(self.folder.glob("runs/*/episodes.jsonl"))
        for text in files[0].read_text("utf-8").splitlines() if files else ():
            line = json.loads(text)
            if line["kind"] != "eval" or line["step"] != max(steps, default=-1):
                continue
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

    def is_done(self, budget: int) -> bool:
        """Whether an evaluation stands at the budget or after it."""
        return any(tokens >= budget for _, tokens, _ in self.curve())

    def train(self, budget: int, seconds: float) -> None:
        """Go on until the budget is sampled, or the time is over."""
        runs, deadline = self.folder / "runs", time.monotonic() + seconds
        run = next(iter(runs.glob("*/spec.json")), None)
        command = [sys.executable, "-m", "troupe.cli", "train"]
        command += ["--resume", str(run.parent)] if run else [str(self.spec)]
        command += ["--runs-dir", str(runs), "--ports", "auto", "--json"]
        with (self.folder / "train.log").open("a") as log:
            process = subprocess.Popen(
                command, stdout=log, stderr=log, env={**os.environ, "OMP_NUM_THREADS": "1"}
            )
            try:
                while process.poll() is None and time.monotonic() < deadline:
                    time.sleep(0.5)
                    if self.is_done(budget):
                        break
            finally:
                if process.poll() is None:
                    process.terminate()  # in order; a background shell's children ignore SIGINT
                process.wait(END_S)


def row_of(arm: Arm, budget: int) -> dict[str, Any]:
    """What the arm came to at the budget, between the evaluations around it."""
    curve = arm.curve()
    before = [point for point in curve if point[1] <= budget]
    after = [point for point in curve if point[1] >= budget]
    if not before or not after:
        return {"curve": curve, "success": None}
    (_, t0, s0), (_, t1, s1) = before[-1], after[0]
    success = s0 + (s1 - s0) * ((budget - t0) / (t1 - t0) if t1 > t0 else 0.0)
    low, high = wilson(s1, arm.num_tasks)
    return {
        "success": round(success, 3),
        "interval": [round(low, 3), round(high, 3)],
        "base": curve[0][2],
        "curve": curve,
        **arm.plans(),
    }


def main() -> None:
    """Train what is missing, and print what is there."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("question", nargs="?", choices=QUESTIONS, default=next(iter(QUESTIONS)))
    parser.add_argument("--tokens", type=int, default=60_000)
    parser.add_argument("--seeds", default="0")
    parser.add_argument("--minutes", type=float, default=math.inf)
    parser.add_argument("--model", help="the base's folder, instead of the example's")
    parser.add_argument("--judge", type=json.loads, help="whose tasks, JSON: the example's judge")
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "program_arms")
    parser.add_argument("--quick", action="store_true", help="1,500 tokens an arm")
    told = parser.parse_args()
    budget = 1_500 if told.quick else told.tokens
    folder = (told.folder / ("quick" if told.quick else "whole")).absolute()
    ends_at = time.monotonic() + 60.0 * told.minutes
    if told.quick and told.model is None:
        told.model = str(quick_model(folder / "model"))
    os.chdir((ROOT / "examples" / QUESTIONS[told.question][0]).parent)  # its paths are relative
    rows: dict[str, dict[str, Any]] = {}
    for seed in map(int, told.seeds.split(",")):
        for name in QUESTIONS[told.question][1]:
            document = spec_of(told.question, name, seed, told.model, told.judge)
            arm = Arm(folder / f"{document['name']}-{seed}", document)
            if not arm.is_done(budget) and (left_s := ends_at - time.monotonic()) > 0:
                arm.train(budget, left_s)
            rows[f"{name}, seed {seed}"] = row_of(arm, budget)
    print(f"| arm | base | success at {budget} tokens | 95 % of the evaluation after it |")
    print("|---|---|---|---|")
    for name, row in rows.items():
        if row["success"] is None:
            print(f"| {name} | | not there yet: {row['curve']} | |")
            continue
        low, high = row["interval"]
        print(f"| {name} | {row['base']:.0%} | {row['success']:.0%} | {low:.0%} to {high:.0%} |")
        if "calls" in row:
            read = f"{row['readable']:.0%} of plans readable"
            print(f"| | {read}; {row['calls']} calls a problem; {row['operators']} | | |")
    about = {"benchmark": "program_arms", "commit": commit(), "machine": machine()}
    print(json.dumps({**about, "question": told.question, "tokens": budget, "arms": rows}))


if __name__ == "__main__":
    main()
