"""Which versions of a policy are staged, loaded and active. Pure bookkeeping on one thread.

Owns the rules of the version table; a `Slot` is what a version computes with. Never touches
tensors: a slot that leaves the table is freed when its last request lets go of it.
"""

from dataclasses import dataclass, field
from typing import Any

from services.rollout.engines.cpu.lane import Lane
from troupe.engines.contract import PolicyState
from troupe.errors import ConflictError, VersionNotLoadedError


@dataclass(eq=False, slots=True)
class Slot:
    """One version of one policy. ``lane`` belongs to the worker thread."""

    policy: str
    policy_version: int
    tensor_digest: str
    module: Any
    lane: Lane


@dataclass(slots=True)
class VersionTable:
    """Versions of one policy. At most ``max_versions`` are loaded, and as many staged."""

    policy: str
    max_versions: int
    active_version: int | None = None
    _loaded: dict[int, Slot] = field(default_factory=dict[int, Slot])
    _staged: dict[int, Slot] = field(default_factory=dict[int, Slot])

    def holds(self, policy_version: int, tensor_digest: str) -> bool:
        """True when this version is here already with these very tensors."""
        slot = self._staged.get(policy_version) or self._loaded.get(policy_version)
        return slot is not None and slot.tensor_digest == tensor_digest

    def stage(self, slot: Slot) -> None:
        """Keep ``slot`` beside the serving versions, in the place of an earlier attempt."""
        self._staged.pop(slot.policy_version, None)
        self._staged[slot.policy_version] = slot
        while len(self._staged) > self.max_versions:
            del self._staged[next(iter(self._staged))]

    def activate(self, policy_version: int) -> None:
        """Make a staged or loaded version the serving one; the oldest beyond the bound go."""
        staged = self._staged.pop(policy_version, None)
        slot = staged or self._loaded.pop(policy_version, None)
        if slot is None:
            raise self._not_loaded(policy_version)
        self._loaded.pop(policy_version, None)
        self._loaded[policy_version] = slot
        self.active_version = policy_version
        while len(self._loaded) > self.max_versions:
            del self._loaded[next(iter(self._loaded))]

    def discard(self, policy_version: int) -> None:
        """Forget a version; requests that hold its slot finish on it."""
        self._staged.pop(policy_version, None)
        if policy_version == self.active_version:
            raise ConflictError(
                f"Version {policy_version} of policy '{self.policy}' is the active one and can't "
                "be discarded. Activate another version first."
            )
        self._loaded.pop(policy_version, None)

    def serving(self, policy_version: int) -> Slot:
        """The loaded slot that answers for a version; raises VersionNotLoadedError."""
        if (slot := self._loaded.get(policy_version)) is None:
            raise self._not_loaded(policy_version)
        return slot

    def scoring(self, policy_version: int) -> Slot:
        """The staged slot, else the loaded one; raises VersionNotLoadedError."""
        slot = self._staged.get(policy_version) or self._loaded.get(policy_version)
        if slot is None:
            raise self._not_loaded(policy_version)
        return slot

    def state(self) -> PolicyState:
        """What is held, for status and heartbeats."""
        active = None if self.active_version is None else self._loaded[self.active_version]
        return PolicyState(
            policy=self.policy,
            active_version=self.active_version,
            tensor_digest=active.tensor_digest if active else "",
            loaded_versions=tuple(sorted(self._loaded)),
            staged_versions=tuple(sorted(self._staged)),
        )

    def _not_loaded(self, policy_version: int) -> VersionNotLoadedError:
        return VersionNotLoadedError(
            f"Version {policy_version} of policy '{self.policy}' is not loaded here (loaded: "
            f"{sorted(self._loaded)}, staged: {sorted(self._staged)}, active: "
            f"{self.active_version}). Stage and activate it, or ask another replica."
        )
