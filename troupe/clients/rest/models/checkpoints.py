"""REST models of downloadable weights."""

from typing import Literal

from troupe.clients.rest.models.base import Document

CheckpointFormat = Literal["peft", "merged", "state"]


class CheckpointPolicyDocument(Document):
    """A policy in a checkpoint."""

    policy: str
    """The policy."""
    version: int | None = None
    """Its version."""
    trains: bool
    """False for past versions and frozen opponents."""
    formats: list[CheckpointFormat]
    """What can be downloaded."""
    size_bytes: int
    """All of its files."""


class CheckpointDocument(Document):
    """Weights that can be downloaded."""

    id: str
    """step-00012, or final: the exported policies."""
    step: int
    """Learned steps in it."""
    created_at: float
    """When it was written."""
    size_bytes: int
    """All of its files."""
    policies: list[CheckpointPolicyDocument]
    """By policy."""


class CheckpointList(Document):
    """Checkpoints of a job, newest first."""

    checkpoints: list[CheckpointDocument]
    """The exported policies first."""
