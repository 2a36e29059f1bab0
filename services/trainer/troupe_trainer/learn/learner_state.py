"""What a learner must remember from one life to the next. Never sees a model."""

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, slots=True)
class LearnerState:
    """All that a learner must remember: ``tensors`` by name and the optimizer's step count.

    ``base`` is the digest of the model that the job found, before it learnt anything; "" in a
    checkpoint of a version that did not note it.
    """

    tensors: dict[str, Tensor]
    optimizer_step: int
    base: str = ""
