"""What a checkpoint depends on, and the words for a spec or a model that does not fit it.

Owns the choice of the spec's parts that must stay the same when a job is resumed. Pure.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

from torch import Tensor

from troupe.errors import InvalidArgumentError
from troupe.spec.job import JobSpec
from troupe_trainer.learn.learner_state import LearnerState

_SHOWN = 5


class CheckpointMismatchError(InvalidArgumentError):
    """The checkpoint belongs to another spec."""

    reason: ClassVar[str] = "CHECKPOINT_MISMATCH"


class IncompatibleWeightsError(CheckpointMismatchError):
    """The checkpoint's tensors do not fit the model, adapter or critic that is there."""

    reason: ClassVar[str] = "CHECKPOINT_INCOMPATIBLE"


class BaseChangedError(CheckpointMismatchError):
    """The tensors fit, but the model under them is not the one that they were learnt on."""

    reason: ClassVar[str] = "CHECKPOINT_BASE_CHANGED"


def spec_parts(spec: JobSpec) -> dict[str, Any]:
    """Seed, policies, algorithm and who plays: what is learnt depends on them."""
    parts = spec.model_dump(
        mode="json",
        include={
            "seed",
            "policies",
            "algorithm",
            "agents",
            "sampling",
            "task",
            "workflow",
            "tasks_per_step",
            "reward",
        },
    )
    for policy in parts["policies"].values():
        del policy["replicas"]
    return parts


def check_spec(folder: Path, body: Mapping[str, Any], spec: JobSpec, *, format: int) -> None:
    """Raises CheckpointMismatchError unless ``body`` is a checkpoint of ``spec``."""
    if body["format"] != format:
        raise CheckpointMismatchError(
            f"The checkpoint {folder} has format {body['format']} and this trainer writes "
            f"{format}. Resume with the version of Troupe that made it, or start in an empty run "
            "folder."
        )
    differences = list(_differences("", body["spec"], spec_parts(spec)))
    if differences:
        shown = "; ".join(differences[:_SHOWN])
        more = f"; and {len(differences) - _SHOWN} more" if len(differences) > _SHOWN else ""
        raise CheckpointMismatchError(
            f"The checkpoint {folder} was made under another spec: {shown}{more}. Resume with the "
            "spec in spec.json of its run folder, or start in an empty run folder."
        )


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
    """Raises unless ``state`` holds just ``parameters``, in their shapes, learnt on ``base``.

    ``owner`` is who has them, for people: "policy 'coder'". A checkpoint that does not say what it
    was learnt on is trusted.

    Raises:
        IncompatibleWeightsError: a tensor is missing, too many or of another shape.
        BaseChangedError: all fit, and the model under them is another.
    """
    saved = {n[6:]: tuple(t.shape) for n, t in state.tensors.items() if n.startswith("param/")}
    own = {name: tuple(p.shape) for name, p in parameters.items()}
    wrong = [n for n in {**own, **saved} if own.get(n) != saved.get(n)]
    if wrong:
        name = wrong[0]
        raise IncompatibleWeightsError(
            f"The checkpoint's weights do not fit {owner}: {len(wrong)} of {len(own)} tensors "
            f"differ, the first is {name}, with shape {saved.get(name, 'none')} in the checkpoint "
            f"and {own.get(name, 'none')} in the model. The model folder holds another model than "
            "when the job began: put the old one back, or start in an empty run folder."
        )
    if state.base and state.base != base:
        raise BaseChangedError(
            f"The checkpoint of {owner} was learnt on a model with digest {state.base[:12]}, and "
            f"the one that its model names now has {base[:12]}: the same shapes, other weights or "
            "settings. Put the old model back, or start in an empty run folder."
        )


def _differences(pointer: str, old: Any, new: Any) -> Iterator[str]:
    """ "/policies/shared/train/rank was 8 and is 4" for each leaf that differs."""
    if isinstance(old, dict) and isinstance(new, dict):
        for name in [*old, *(n for n in new if n not in old)]:
            yield from _differences(f"{pointer}/{name}", old.get(name), new.get(name))
    elif old != new:
        yield f"{pointer} was {_short(old)} and is {_short(new)}"


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
