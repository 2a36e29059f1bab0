"""Tracks which versions of a policy are staged, loaded and active. Pure, on one thread.

Owns the rules of the version table, the same for every engine; the engine owns what a version
computes with (`Version`). Never touches tensors: ``on_drop`` says that a version left the table.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from troupe.errors import ConflictError, VersionNotLoadedError, WeightsRejectedError
from troupe.runtime.engines.engine import PolicyState, StagedWeights
from troupe.runtime.weights import TensorSum, digest_of_sums


class Version(Protocol):
    """One version of one policy as an engine holds it."""

    @property
    def policy_version(self) -> int:
        """Its number."""
        ...

    @property
    def tensor_digest(self) -> str:
        """Digest over its tensors."""
        ...


Held = TypeVar("Held", bound=Version)


def _keep_nothing(version: object) -> None:
    """For engines whose versions are freed by the last reference."""


def held_digest(weights: StagedWeights, tensors: Iterable[TensorSum]) -> str:
    """The digest of an engine's tensors; raises WeightsRejectedError, naming a wrong one."""
    sums = list(tensors)
    digests = {tensor.name: tensor.digest for tensor in sums}
    names = sorted(weights.announced.keys() | digests.keys()) if weights.announced else ()
    for name in names:
        held, sent = digests.get(name, "missing"), weights.announced.get(name, "none")
        if held != sent:
            raise WeightsRejectedError(
                f"Weights of policy '{weights.policy}' version {weights.policy_version} are "
                f"refused: the digest of tensor '{name}' that the engine holds is {held[:16]}, and "
                f"{sent[:16]} was sent. The serving version is unchanged; send them again.",
                pointer=f"/tensors/{name}",
            )
    return digest_of_sums(sums)


@dataclass(slots=True)
class VersionTable(Generic[Held]):
    """Versions of one policy. At most ``max_versions`` are loaded, and as many staged."""

    policy: str
    max_versions: int
    on_drop: Callable[[Held], None] = _keep_nothing
    active_version: int | None = None
    _loaded: dict[int, Held] = field(default_factory=dict[int, Held])
    _staged: dict[int, Held] = field(default_factory=dict[int, Held])

    def holds(self, policy_version: int, tensor_digest: str) -> bool:
        """True when this version is already present with exactly these tensors."""
        held = self._staged.get(policy_version) or self._loaded.get(policy_version)
        return held is not None and held.tensor_digest == tensor_digest

    def check_forward(self, policy_version: int) -> None:
        """Raise ConflictError for a version that no valid trainer would still publish.

        A trainer that died between publish and commit comes back one version behind, not more.
        """
        if self.active_version is not None and policy_version < self.active_version - 1:
            raise ConflictError(
                f"Version {policy_version} of policy '{self.policy}' is older than the active "
                f"version {self.active_version}: versions never go back. Publish a newer one."
            )

    def make_room(self, policy_version: int) -> None:
        """Before a version is built: with it, at most ``max_versions`` are held.

        Its own earlier attempt goes, then loaded ones that are not active, the lowest first, then
        staged ones. Raises ConflictError as ``stage`` does.
        """
        self.check_forward(policy_version)
        self._remove(self._staged, policy_version)
        idle = sorted(self._loaded.keys() - {self.active_version})
        spare = [(self._loaded, v) for v in idle] + [(self._staged, v) for v in self._staged]
        for versions, number in spare[: max(0, len(self.held()) + 1 - self.max_versions)]:
            self._remove(versions, number)

    def stage(self, version: Held) -> None:
        """Keep ``version`` beside the serving ones, replacing an earlier attempt."""
        self.check_forward(version.policy_version)
        self._remove(self._staged, version.policy_version)
        self._staged[version.policy_version] = version
        while len(self._staged) > self.max_versions:
            self._remove(self._staged, next(iter(self._staged)))

    def activate(self, policy_version: int) -> None:
        """Make a staged or loaded version the serving one; the oldest beyond the bound go.

        Raises:
            ConflictError: it is too old, as when a call arrives late; VersionNotLoadedError.
        """
        self.check_forward(policy_version)
        staged = self._staged.pop(policy_version, None)
        loaded = self._loaded.pop(policy_version, None)
        version = staged or loaded
        if version is None:
            raise self._not_loaded(policy_version)
        self._loaded[policy_version] = version
        self.active_version = policy_version
        if staged is not None and loaded is not None:
            self.on_drop(loaded)
        while len(self._loaded) > self.max_versions:
            # By number: an old version that was activated once more must not outlive a new one.
            self._remove(self._loaded, min(self._loaded.keys() - {policy_version}))

    def discard(self, policy_version: int) -> None:
        """Forget a version; requests that hold it finish on it."""
        self._remove(self._staged, policy_version)
        if policy_version == self.active_version:
            raise ConflictError(
                f"Version {policy_version} of policy '{self.policy}' is the active one and can't "
                "be discarded. Activate another version first."
            )
        self._remove(self._loaded, policy_version)

    def lose(self, policy_version: int) -> None:
        """Forget a version that the engine lost: it must be sent again."""
        self._remove(self._staged, policy_version)
        self._remove(self._loaded, policy_version)
        if policy_version == self.active_version:
            self.active_version = None

    def serving(self, policy_version: int) -> Held:
        """The loaded version that answers; raises VersionNotLoadedError."""
        if (version := self._loaded.get(policy_version)) is None:
            raise self._not_loaded(policy_version)
        return version

    def scoring(self, policy_version: int) -> Held:
        """The staged version, else the loaded one; raises VersionNotLoadedError."""
        version = self._staged.get(policy_version) or self._loaded.get(policy_version)
        if version is None:
            raise self._not_loaded(policy_version)
        return version

    def held(self) -> list[Held]:
        """Everything that is loaded or staged."""
        return [*self._loaded.values(), *self._staged.values()]

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

    def _remove(self, versions: dict[int, Held], policy_version: int) -> None:
        if (version := versions.pop(policy_version, None)) is not None:
            self.on_drop(version)

    def _not_loaded(self, policy_version: int) -> VersionNotLoadedError:
        return VersionNotLoadedError(
            f"Version {policy_version} of policy '{self.policy}' is not loaded here (loaded: "
            f"{sorted(self._loaded)}, staged: {sorted(self._staged)}, active: "
            f"{self.active_version}). Stage and activate it, or ask another replica."
        )
