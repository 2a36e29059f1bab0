"""Checks whether a checkpoint belongs to a spec, and explains how it differs.

Owns which parts of the spec must stay the same when a job is resumed. Pure.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from troupe.spec.differences import differences
from troupe.spec.job import JobSpec
from troupe_trainer.model.learner_state import CheckpointMismatchError

_SHOWN = 5


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


def check_spec(
    folder: Path, body: Mapping[str, Any], spec: JobSpec, *, formats: Sequence[int]
) -> None:
    """Raises CheckpointMismatchError unless ``body`` is a checkpoint of ``spec``."""
    if body["format"] not in formats:
        known = " and ".join(map(str, formats))
        raise CheckpointMismatchError(
            f"The checkpoint {folder} has format {body['format']} and this trainer reads {known}. "
            "Resume with the version of Troupe that made it, or start in an empty run folder."
        )
    found = [
        f"{pointer} was {_short(old)} and is {_short(new)}"
        for pointer, old, new in differences(body["spec"], spec_parts(spec))
    ]
    if found:
        shown = "; ".join(found[:_SHOWN])
        more = f"; and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
        raise CheckpointMismatchError(
            f"The checkpoint {folder} was made under another spec: {shown}{more}. Resume with the "
            "spec in spec.json of its run folder, or start in an empty run folder."
        )


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
