"""The learning rate as a function of the optimizer step. Keeps no state."""

import math

from troupe.spec.policy import OptimizerSpec


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
