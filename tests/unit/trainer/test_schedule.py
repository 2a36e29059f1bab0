import random
from pathlib import Path

import pytest
from trainer_data import LORA, job_spec, make_group

from troupe.algorithms.grpo import Grpo
from troupe.samplers.parallel import ParallelSampler
from troupe.samplers.sampler import Sampler
from troupe.samplers.tree import TreeSampler
from troupe.spec.policy import OptimizerSpec
from troupe_trainer.learn.learner import Learner
from troupe_trainer.learn.schedule import learning_rate, num_updates
from troupe_trainer.samples import credit


def test_rate_when_warming_up_then_rises_linearly_to_the_peak() -> None:
    spec = OptimizerSpec(learning_rate=1.0, warmup_steps=4)
    rates = [learning_rate(spec, s, 100) for s in range(6)]
    assert rates == pytest.approx([0.25, 0.5, 0.75, 1.0, 1.0, 1.0])


def test_rate_when_linear_then_falls_to_the_floor_at_the_last_step() -> None:
    spec = OptimizerSpec(learning_rate=1.0, warmup_steps=0, schedule="linear", min_ratio=0.2)
    assert [learning_rate(spec, s, 5) for s in range(5)] == pytest.approx([1.0, 0.8, 0.6, 0.4, 0.2])


def test_rate_when_cosine_then_is_half_way_in_the_middle() -> None:
    spec = OptimizerSpec(learning_rate=1.0, warmup_steps=0, schedule="cosine", min_ratio=0.0)
    assert learning_rate(spec, 2, 5) == pytest.approx(0.5)
    assert learning_rate(spec, 4, 5) == pytest.approx(0.0)


@pytest.mark.parametrize(
    ("sampler", "minibatches", "updates"),
    [
        (ParallelSampler(4), 3, 24),  # 4 steps of 2 epochs
        (ParallelSampler(4), 8, 32),  # 3 tasks and 2 agents: 4 of the 8 have groups
        (TreeSampler(4), 8, 64),
    ],
)
def test_updates_when_whole_episodes_fill_few_minibatches_then_empty_ones_do_not_count(
    sampler: Sampler, minibatches: int, updates: int
) -> None:
    algorithm = {"group_size": 4, "minibatches": minibatches, "epochs": 2}
    spec = job_spec(Path("m"), tasks_per_step=3, algorithm=algorithm)
    assert num_updates("shared", spec, sampler) == updates


@pytest.mark.parametrize("tasks", [1, 2, 3])
def test_rate_when_minibatches_exceed_the_groups_then_comes_to_its_floor(
    tiny_model: Path, tasks: int
) -> None:
    optimizer = {"learning_rate": 0.001, "warmup_steps": 0, "schedule": "linear", "min_ratio": 0.0}
    policy = {"model": str(tiny_model), "train": LORA, "optimizer": optimizer}
    algorithm = {"kind": "grpo", "group_size": 4, "minibatches": 8}
    spec = job_spec(
        tiny_model, tasks_per_step=tasks, policies={"shared": policy}, algorithm=algorithm
    )
    learner = Learner("shared", spec, Grpo(spec.algorithm), device="cpu")
    rates: list[float] = []
    for step in range(spec.steps):
        rng = random.Random(step)
        groups = [
            make_group(rng, step=step, task=n, agent=agent, rewards=[1.0, 0.0, 0.0, 0.0])
            for n in range(tasks)
            for agent in ("planner", "tool")
        ]
        credited = [credit(group, [0.75, -0.25, -0.25, -0.25], 1.0) for group in groups]
        rates.append(learner.step(credited).metrics["learning_rate"])
    assert rates[-1] == 0.0
    assert rates[-2] > 0.0
