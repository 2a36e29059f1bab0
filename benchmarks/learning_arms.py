"""The arms of `benchmarks.learning_curve`: tasks, base models, and the job of each arm.

Owns the specs. Never trains.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from troupe.tasks.optional import split_key_of
from troupe.tasks.registry import load_family

LORA_RATES = (2.5e-4, 5e-4, 1e-3, 2e-3)
FULL_RATES = (3e-5, 1e-4, 3e-4, 1e-3)
TASKS_PER_STEP = (8, 32)
WARM_UP_TASKS = 40
"""Over training tasks of the learning rate's warm-up, in updates; with two updates a step it ends
after half of them, and steps of 32 tasks have none."""
EVAL_EVERY_TASKS = 96
"""Training tasks from one held-out evaluation to the next."""
STEP: dict[str, Any] = {
    "minibatches": 2,
    "loss": {"entropy_coef": 0.01},
    "filters": {"zero_variance": True},
}
"""Of every arm's algorithm (best_of_k has no entropy bonus); found for AT-GRPO by
``benchmarks/results/demo.md``, tuned for none."""


@dataclass(frozen=True)
class Task:
    """What is played: the family, its seats, and the base model that all arms begin with.

    ``alone``: the seat of a team of one; empty where one agent cannot see what it needs. ``base``:
    more flags of ``troupe model tiny``. ``first_test``: the first test task that no setting of any
    earlier experiment was chosen on. ``tokens``: sampled in training, a run.
    """

    family: str
    params: dict[str, Any]
    seats: tuple[str, str]
    alone: str
    max_turns: int
    max_new_tokens: int
    base: dict[str, Any] = field(default_factory=dict[str, Any])
    first_test: int = 0
    tokens: int = 100_000

    def twins(self, num_tasks: int) -> list[int]:
        """For each test task the number of its map: equal for maps turned or mirrored."""
        family = load_family(self.family, self.params)
        taskset, numbers = family.taskset(), dict[str, int]()
        found: list[int] = []
        for index in range(self.first_test, self.first_test + num_tasks):
            task = taskset.task("test", index)
            key = split_key_of(family, task) or task.payload.hex()
            found.append(numbers.setdefault(key, len(numbers)))
        return found


TASKS = {
    "plan_path": Task(
        "plan_path",
        {"size": 6, "max_actions": 4},
        ("tool", "planner"),
        "planner",
        max_turns=4,
        max_new_tokens=6,
        base={"--warm-start": {"num_careful_steps": 90, "num_careless_steps": 0}},
        first_test=400,
        tokens=50_000,
    ),
    "guided_walk": Task(
        "guided_walk",
        {"size": 4, "num_walls": 4, "view": "beside"},
        ("scout", "walker"),
        "",
        max_turns=6,
        max_new_tokens=6,
        first_test=600,
    ),
}


@dataclass(frozen=True)
class Arm:
    """One line of the plot: an algorithm, who learns with which weights, and what it needs besides.

    ``level``: L0 one agent, L1 one adapter for both, L2 an adapter each, L3 all weights each.
    ``has_terms``: False where the team's reward counts and no term of an agent's own.
    ``tasks_share``: of the tasks a step, where an episode of the arm samples more tokens.
    """

    algorithm: str
    level: str
    group_size: int = 8
    own: dict[str, Any] = field(default_factory=dict[str, Any])
    workflow: dict[str, Any] = field(default_factory=dict[str, Any])
    tasks_share: float = 1.0
    has_terms: bool = True

    def plays(self, task: Task) -> bool:
        """False where nobody could win so."""
        if self.level == "L0":
            return bool(task.alone)
        # Who acts at the same time does not hear what the other says.
        return not self.workflow or bool(task.alone)

    def policies(self, task: Task) -> dict[str, str]:
        """agent -> policy."""
        if self.level == "L0":
            return {task.alone: "shared"}
        return {seat: "shared" if self.level == "L1" else seat for seat in task.seats}

    @property
    def game(self) -> str:
        """Arms of one game can be compared; another order of acts is another game."""
        if self.level == "L0":
            return "alone"
        return "at once" if self.workflow else "in turn"

    @property
    def rates(self) -> tuple[float, ...]:
        """Learning rates that the arm is tuned over."""
        return FULL_RATES if self.level == "L3" else LORA_RATES


NO_ENTROPY = {"loss": {"entropy_coef": 0.0}}
_POSITIVE = {"loss": {**STEP["loss"], "negative_advantage_weight": 0.0}}
_UNSCALED = {"scale": "none"}
_RANDOM = {"params": {"advance": "random"}}
_NOW = {"params": {"gamma": 1e-6}}
_ACT = {"params": {"gamma": 0.0, "reward": "own_act"}}
# A step of 32 tasks is one of fourteen: the critic must keep up with returns of 0 to 8.
_CRITIC = {
    "critic": {
        "kind": "model",
        "train": {"kind": "lora", "rank": 32, "alpha": 64},
        "learning_rate": 3e-3,
        "epochs": 8,
        "clip": None,
    }
}
ARMS = {
    "at_grpo": Arm("at_grpo", "L1"),
    "at_grpo_random": Arm("at_grpo", "L1", own=_RANDOM),
    "at_grpo_no_entropy": Arm("at_grpo", "L1", own=NO_ENTROPY),
    "at_grpo_positive": Arm("at_grpo", "L1", own=_POSITIVE),
    "at_grpo_unscaled": Arm("at_grpo", "L1", own=_UNSCALED),
    "turn_grpo": Arm("turn_grpo", "L1"),
    "turn_grpo_team": Arm("turn_grpo", "L1", has_terms=False),
    "turn_grpo_now": Arm("turn_grpo", "L1", own=_NOW),
    "turn_grpo_act": Arm("turn_grpo", "L1", own=_ACT),
    "grpo": Arm("grpo", "L1"),
    "grpo_team": Arm("grpo", "L1", has_terms=False),
    # Its tree has K joint actions a node and so K ** 4 leaves: K is small, and so are its steps.
    "magrpo": Arm("magrpo", "L1", 3, {"joint": {}}, {"kind": "simultaneous"}, 0.25),
    "ippo": Arm("ippo", "L1", own=_CRITIC, has_terms=False),
    "best_of_k": Arm("best_of_k", "L1"),
    "at_grpo_L2": Arm("at_grpo", "L2"),
    "at_grpo_L3": Arm("at_grpo", "L3"),
    "at_grpo_L0": Arm("at_grpo", "L0"),
    "at_grpo_random_L0": Arm("at_grpo", "L0", own=_RANDOM),
    "at_grpo_positive_L0": Arm("at_grpo", "L0", own=_POSITIVE),
    "turn_grpo_L0": Arm("turn_grpo", "L0"),
    "grpo_L0": Arm("grpo", "L0"),
    "ippo_L0": Arm("ippo", "L0", own=_CRITIC, has_terms=False),
    "best_of_k_L0": Arm("best_of_k", "L0"),
}
CONTRASTS = {
    ("at_grpo", "at_grpo_random"): "to go on from the best of K, not from any",
    ("at_grpo_random", "turn_grpo_act"): "the tree: an act beside others at its own prompt",
    ("at_grpo", "best_of_k"): "to learn from all K, not to imitate the best",
    ("at_grpo", "turn_grpo_team"): "against whole episodes, team's reward-to-go",
    ("at_grpo", "grpo_team"): "against whole episodes, team's return",
}
"""What the experiment asks, named before its final runs: the p of each, at temperature 1, is
corrected for them all (Holm)."""


@dataclass(frozen=True)
class Setting:
    """What an arm is tuned over."""

    rate: float
    tasks_per_step: int


def settings_of(arm: Arm) -> Iterator[Setting]:
    """Every setting that the arm is tried with: as many for each arm."""
    for rate in arm.rates:
        for tasks in TASKS_PER_STEP:
            yield Setting(rate, tasks)


def spec_of(
    name: str,
    arm: Arm,
    task: Task,
    model: Path,
    setting: Setting,
    seed: int,
    *,
    steps: int,
    eval_tasks: int,
) -> dict[str, Any]:
    """The job of one arm; the levels differ in the map agent -> policy and in what is trained."""
    seats = arm.policies(task)
    share = arm.tasks_share * (2 if arm.level == "L0" else 1)
    train = {"kind": "full"} if arm.level == "L3" else {"kind": "lora", "rank": 32, "alpha": 64}
    tasks_per_step = max(2, round(setting.tasks_per_step * share))
    policy = {
        "model": str(model.absolute()),
        "train": train,
        "optimizer": {
            "learning_rate": setting.rate,
            "warmup_steps": max(1, round(WARM_UP_TASKS / tasks_per_step)),
        },
    }
    local_terms = load_family(task.family, task.params).local_terms
    terms = {agent: dict.fromkeys(local_terms.get(agent, ()), 0.0) for agent in seats}
    return {
        "name": name.lower().replace("_", "-"),
        "seed": seed,
        "steps": steps,
        "tasks_per_step": tasks_per_step,
        "task": {"name": task.family, "params": task.params},
        "workflow": {"order": list(seats), "max_turns": task.max_turns, **arm.workflow},
        "agents": {agent: {"policy": policy_name} for agent, policy_name in seats.items()},
        "policies": dict.fromkeys(sorted(set(seats.values())), policy),
        "algorithm": {"kind": arm.algorithm, "group_size": arm.group_size, **STEP, **arm.own},
        "sampling": {"max_new_tokens": task.max_new_tokens},
        "batch": {"tokens_per_row": 256},
        **({} if arm.has_terms else {"reward": {"weights": terms}}),
        "eval": {
            "num_tasks": eval_tasks,
            "split": "validation",
            "every": max(1, round(EVAL_EVERY_TASKS / tasks_per_step)),
        },
    }
