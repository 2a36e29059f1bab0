"""What a version of a policy computes with in the `cpu` engine.

A slot that leaves the version table is freed when its last request lets go of it.
"""

from dataclasses import dataclass
from typing import Any

from troupe_rollout.engines.cpu.batcher import Batcher


@dataclass(eq=False, slots=True)
class Slot:
    """One version of one policy. ``lane`` belongs to the worker thread."""

    policy: str
    policy_version: int
    tensor_digest: str
    module: Any
    lane: Batcher
