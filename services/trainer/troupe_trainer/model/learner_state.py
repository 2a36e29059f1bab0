"""A learner's state across restarts, and the check whether it fits a model.

Owns the check and its messages. Never sees a model, only the shapes of its parameters.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from troupe.errors import InvalidArgumentError
from troupe_trainer.model.stored import shapes_of


class CheckpointMismatchError(InvalidArgumentError):
    """The checkpoint belongs to another spec."""

    reason: ClassVar[str] = "CHECKPOINT_MISMATCH"


class IncompatibleWeightsError(CheckpointMismatchError):
    """The checkpoint's tensors do not fit the present model, adapter or critic."""

    reason: ClassVar[str] = "CHECKPOINT_INCOMPATIBLE"


class BaseChangedError(CheckpointMismatchError):
    """The tensors fit, but they were trained on another base model."""

    reason: ClassVar[str] = "CHECKPOINT_BASE_CHANGED"


@dataclass(frozen=True, slots=True)
class LearnerState:
    """A learner's full state: ``tensors`` by name and the optimizer's step count.

    ``base`` is the digest of the job's base model before any training; "" in a checkpoint of a
    version that did not record it. ``num_parts`` above 1: the tensors are rank 0's rows alone, and
    as many ranks write theirs beside them.
    """

    tensors: Mapping[str, Tensor]
    optimizer_step: int
    base: str = ""
    num_parts: int = 1


def state_of(states: Mapping[str, LearnerState], name: str) -> LearnerState:
    """The state of ``name``; raises IncompatibleWeightsError where there is none."""
    if name not in states:
        raise IncompatibleWeightsError(
            f"The checkpoint holds nothing of '{name}', only {', '.join(sorted(states))}. Resume "
            "with the version of Troupe that made it, or start in an empty run folder."
        )
    return states[name]


def check_fits(
    owner: str, state: LearnerState, parameters: Mapping[str, Tensor], base: str
) -> None:
    """Raise unless ``state`` holds exactly ``parameters``, in their shapes, trained on ``base``.

    ``owner`` names the parameters' owner in messages: "policy 'coder'". A checkpoint that does not
    record its base is trusted.

    Raises:
        IncompatibleWeightsError: a tensor is missing, unexpected or of another shape.
        BaseChangedError: all tensors fit, but the base model is another.
    """
    shapes = shapes_of(state.tensors)
    saved = {name[6:]: shape for name, shape in shapes.items() if name.startswith("param/")}
    expected = {name: tuple(p.shape) for name, p in parameters.items()}
    wrong = [n for n in {**expected, **saved} if expected.get(n) != saved.get(n)]
    if wrong:
        name = wrong[0]
        raise IncompatibleWeightsError(
            f"The checkpoint's weights do not fit {owner}: {len(wrong)} of {len(expected)} tensors "
            f"differ, the first is {name}, with shape {saved.get(name, 'none')} in the checkpoint "
            f"and {expected.get(name, 'none')} in the model. The model folder holds another model "
            "than when the job began: put the old one back, or start in an empty run folder."
        )
    if state.base and state.base != base:
        raise BaseChangedError(
            f"The checkpoint of {owner} was learnt on a model with digest {state.base[:12]}, and "
            f"the one that its model names now has {base[:12]}: the same shapes, other weights or "
            "settings. Put the old model back, or start in an empty run folder."
        )
