"""The learning rate as a function of the optimizer step, and how many there are. Keeps no state."""

import math

from troupe.samplers.sampler import Sampler
from troupe.spec.job import JobSpec
from troupe.spec.policy import OptimizerSpec


def num_updates(policy: str, spec: JobSpec, sampler: Sampler) -> int:
    """Optimizer steps of ``policy`` in the whole job, over which its schedules fall.

    Whole episodes make one group of each ticket for each agent. A ticket's groups are dealt to
    minibatches that follow each other, from another first one for each ticket, so what is beyond
    the last ticket's last group stays empty and makes no step.
    """
    algorithm = spec.algorithm
    turns = sum(spec.learns(policy, step) for step in range(spec.steps))
    filled = algorithm.minibatches
    if sampler.grouping != "observation":
        agents = sum(agent.policy == policy for agent in spec.agents.values())
        filled = min(filled, spec.tasks_per_step + agents - 1)
    return turns * filled * algorithm.epochs


def learning_rate(spec: OptimizerSpec, step: int, num_steps: int) -> float:
    """Rate of optimizer step ``step`` (from 0) out of ``num_steps``.

    Linear warm-up reaches the peak at step ``warmup_steps - 1``; cosine and linear then fall to
    ``min_ratio`` of it at the last step.

    Example: ``learning_rate(OptimizerSpec(learning_rate=1.0, warmup_steps=4), 0, 10) == 0.25``.
    """
    if step < spec.warmup_steps:
        return spec.learning_rate * (step + 1) / spec.warmup_steps
    span = max(1, num_steps - 1 - spec.warmup_steps)
    done = min(1.0, (step - spec.warmup_steps) / span)
    if spec.schedule == "constant":
        return spec.learning_rate
    factor = 0.5 * (1.0 + math.cos(math.pi * done)) if spec.schedule == "cosine" else 1.0 - done
    return spec.learning_rate * (spec.min_ratio + (1.0 - spec.min_ratio) * factor)
