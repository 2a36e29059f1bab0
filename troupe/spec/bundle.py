"""The part of a job spec about code that travels with the job (docs/bundles.md)."""

from typing import Annotated, Literal

from pydantic import Field

from troupe.spec.base import MAX_NAMED, SpecModel

_Text = Annotated[str, Field(min_length=1, max_length=100)]
BundleDigest = Annotated[str, Field(pattern=r"^sha256:[0-9a-f]{64}$")]


class TaskFacts(SpecModel):
    """What planning needs of a task whose code only env services load.

    `troupe submit --with` fills it in; an env service refuses a task that differs.
    """

    agents: list[_Text] = Field(min_length=1, max_length=MAX_NAMED)
    """Agents of the task."""
    local_terms: dict[_Text, dict[_Text, float]] = Field(default_factory=dict, max_length=MAX_NAMED)
    """agent -> term -> default weight."""
    sizes: dict[Literal["train", "validation", "test"], Annotated[int, Field(ge=0)] | None] = Field(
        default_factory=dict
    )
    """Tasks in each split; null, or left out: the split does not end."""


class BundleSpec(SpecModel):
    """Code that was uploaded for this job (`troupe submit --with`, docs/bundles.md).

    With it, `file.py:attr` and `module:attr` in `task.name`, `reward.kind` and `reward.strict.kind`
    name code of the bundle, which env services load and no other process.
    """

    digest: BundleDigest
    """`sha256:` and the hexadecimal digest of the archive."""
    task: TaskFacts | None = None
    """Facts about the task, where its code lies in the bundle."""
