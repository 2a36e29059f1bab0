"""The arms of `benchmarks.learning_curve`: tasks, base models, and the job of each arm.

Owns the specs. Never trains.
"""

import argparse
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Task:
    """What is played: the family, the base model, and the seats of a team and of one agent."""

    params: dict[str, Any]
    family: str
    max_new_tokens: int
    size: int
    alone: str = "planner"


TASKS = {
    "plan_path": Task({"size": 6, "max_actions": 4}, "plan_path", 6, 6),
    "sudoku": Task({"size": 4, "holes": 6, "max_actions": 6}, "sudoku", 14, 4),
}
SMALL = {
    "plan_path": Task({"size": 4, "max_actions": 3}, "plan_path", 6, 4),
    "sudoku": Task({"size": 4, "holes": 4, "max_actions": 4}, "sudoku", 14, 4),
}
QUICK_MODEL = {
    "--shape": {"hidden_size": 64, "num_layers": 2, "num_heads": 2, "intermediate_size": 128},
    "--warm-start": {"num_careful_steps": 250, "num_careless_steps": 50, "batch_size": 32},
}

SMALL_STEPS = {"plan_path": (120, 0.5), "sudoku": (800, 0.3)}
"""Careful steps of the small tasks' models, and how often the careless ones slip: they know a
little, so that there is something to learn and something to learn from."""


def small_model(task: str) -> dict[str, Any]:
    """The small task's model; it knows less than the quick one."""
    careful, slip = SMALL_STEPS[task]
    steps = {"num_careful_steps": careful, "num_careless_steps": 80}
    return {**QUICK_MODEL, "--warm-start": {**steps, "slip_rate": slip, "batch_size": 32}}


@dataclass(frozen=True)
class Arm:
    """One line of the plot: an algorithm, who learns with which weights, and what it needs besides.

    ``tasks_share``: of the tasks a step, where an episode of the arm samples more tokens.
    """

    algorithm: str
    level: str
    group_size: int = 8
    own: dict[str, Any] = field(default_factory=dict[str, Any])
    workflow: dict[str, Any] = field(default_factory=dict[str, Any])
    tasks_share: float = 1.0

    def policies(self, task: Task) -> dict[str, str]:
        """agent -> policy."""
        if self.level == "L0":
            return {task.alone: "shared"}
        agents = ("tool", "planner")
        return {a: "shared" if self.level == "L1" else a for a in agents}


ARMS = {
    "at_grpo": Arm("at_grpo", "L1"),
    "grpo_single": Arm("grpo", "L0"),
    "mas_grpo": Arm("grpo", "L1"),
    # Its tree has K joint actions a node and so K ** 4 leaves: K is small, and so are its steps.
    "magrpo": Arm("magrpo", "L1", 3, {"joint": {}}, {"kind": "simultaneous"}, 0.25),
    "marloo": Arm("marloo", "L1"),
    "ippo": Arm("ippo", "L1", own={"critic": {"kind": "head"}}),
    "at_grpo_L0": Arm("at_grpo", "L0"),
    "at_grpo_L2": Arm("at_grpo", "L2"),
    "at_grpo_L3": Arm("at_grpo", "L3"),
}


def spec_of(
    name: str, task: Task, model: Path, seed: int, plan: argparse.Namespace
) -> dict[str, Any]:
    """The job of one arm; the levels differ in the map agent -> policy and in what is trained."""
    arm = ARMS[name]
    seats = arm.policies(task)
    share = arm.tasks_share * (2 if arm.level == "L0" else 1)
    train = {"kind": "full"} if arm.level == "L3" else {"kind": "lora", "rank": 32, "alpha": 64}
    rate = plan.full_rate if arm.level == "L3" else plan.lora_rate
    policy = {
        "model": str(model.absolute()),
        "train": train,
        "optimizer": {"learning_rate": rate, "warmup_steps": 5},
    }
    return {
        "name": name.lower().replace("_", "-"),
        "seed": seed,
        "steps": plan.max_steps,
        "tasks_per_step": max(2, round(plan.tasks_per_step * share)),
        "task": {"name": task.family, "params": task.params},
        "workflow": {"order": list(seats), "max_turns": 4, **arm.workflow},
        "agents": {agent: {"policy": policy_name} for agent, policy_name in seats.items()},
        "policies": dict.fromkeys(sorted(set(seats.values())), policy),
        "algorithm": {"kind": arm.algorithm, "group_size": arm.group_size, **arm.own},
        "sampling": {"max_new_tokens": task.max_new_tokens},
        "batch": {"tokens_per_row": 256},
        "eval": {"num_tasks": plan.eval_tasks, "every": plan.eval_every},
    }
