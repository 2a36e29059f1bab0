"""The questions of `benchmarks.program_arms`: examples, their arms, and the job of each.

Owns the specs. Never trains.
"""

from dataclasses import dataclass
from typing import Any

import yaml

from benchmarks.program_examples import ROOT

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


def _pair(kind: str, **changes: Any) -> dict[str, Any]:
    """Two writers, learnt by an algorithm with the example's groups, of notes of their own."""
    params = {"program": "writers:run", **TOY}
    params["judge"] = {"name": "notes:Notes", "agent": "writer", "params": {"seed": 1}}
    algorithm = {"kind": kind, "group_size": 6, "minibatches": 2}
    return {"params": params, "algorithm": algorithm, **changes}


NO_TERMS = {"short": {"sentence": 0.0}, "long": {"sentence": 0.0}}
FIVE = "".join(f"{name} = answer()\n" for name in "abcde") + "f = vote(a, b, c, d, e)"


@dataclass(frozen=True)
class Question:
    """What is compared: changes of an example by arm, and how. ``tasks``: of a step, if changed.

    ``measure``: of a held-out episode's line, 0 to 1.
    """

    example: str
    arms: dict[str, dict[str, Any]]
    rates: tuple[float, ...] = (2.5e-3, 5e-3, 1e-2)
    num_tasks: int = 200
    every: int = 6
    measure: str = "is_success"


TWO = "a = program()\nb = answer()\nc = vote(a, b)"
"""In a tie the program's answer counts; a program that prints nothing has none."""
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
            "one answer": _fixed("a = answer()", tasks=78),
            "program and answer": _fixed(TWO, tasks=10),
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
            "grpo_own": _pair("grpo", reward={"alpha": 0.0}),
            "grpo_team": _pair("grpo", reward={"weights": NO_TERMS}),
            "best_of_k": _pair("best_of_k"),
        },
        rates=(3.5e-4, 1e-3, 2.8e-3),
        num_tasks=40,
        every=2,
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
    document["reward"] = changes.get("reward", document.get("reward", {}))
    document["eval"] = {
        "num_tasks": of_question.num_tasks,
        "every": of_question.every,
        "split": split,
    }
    return document
