"""The Engine interface: what a rollout sidecar needs from any inference engine.

An engine holds policies; a policy has loaded versions, one of them active. Generation names the
version that must answer. New weights are staged beside the old ones, then activated; requests
in flight finish on the version that they began with.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol, runtime_checkable

from troupe.candidates import GenerateRequest, Generation
from troupe.spec.policy import PolicySpec
from troupe.tasks.content import ImagePart
from troupe.tasks.family import Message


@dataclass(frozen=True, slots=True)
class StagedWeights:
    """A safetensors file on this machine that holds one version of one policy.

    ``adapter_config_json`` is peft's configuration for "lora" and empty for "full";
    ``announced`` is the digest of each tensor, by name, that the trainer sent.
    """

    policy: str
    policy_version: int
    kind: Literal["lora", "full"]
    path: Path
    adapter_config_json: str
    announced: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True)
class PolicyState:
    """What the engine holds of one policy."""

    policy: str
    active_version: int | None
    tensor_digest: str
    loaded_versions: tuple[int, ...]
    staged_versions: tuple[int, ...]


@runtime_checkable
class SleepingEngine(Protocol):
    """An engine that can take turns on its device with a trainer. Both calls are idempotent."""

    async def sleep(self) -> None:
        """Give the device up once no request is in flight; raises OverloadedError meanwhile."""
        ...

    async def wake(self) -> None:
        """Take the device back, with every version; raises TroupeError when that fails."""
        ...


class Engine(Protocol):
    """One inference engine. All methods are safe to call concurrently from one event loop."""

    name: str

    async def start(self, policies: dict[str, PolicySpec]) -> None:
        """Load and warm the models; raises InvalidArgumentError when a model can't be loaded."""
        ...

    def render(self, policy: str, messages: Sequence[Message]) -> list[int]:
        """Token ids of a chat prompt, ready for the assistant's answer.

        Tools, calls and results stand in it as the model's chat template has them, or in Hermes
        form; an answer's text has calls in Hermes form. An image's placeholder stands once for each
        of its tokens.
        """
        ...

    async def generate(self, request: GenerateRequest[Sequence[int]]) -> Generation:
        """Candidates of a prompt in token ids and images.

        Raises VersionNotLoadedError, InvalidArgumentError, OverloadedError.
        """
        ...

    async def score(
        self,
        policy: str,
        policy_version: int,
        token_ids: Sequence[int],
        images: Sequence[ImagePart] = (),
    ) -> list[float]:
        """Logprob of every token but the first, at temperature 1, by a loaded or staged version.

        ``images`` are those of the placeholders among the ids, in order. A placeholder has 0: no
        text predicts an image.
        """
        ...

    async def score_completions(
        self,
        policy: str,
        policy_version: int,
        prompt: Sequence[int],
        completions: Sequence[Sequence[int]],
    ) -> list[list[float]]:
        """Logprob of every token of each completion of a prompt, as ``score``.

        The numbers depend on this request alone, and not on what else is computed.
        """
        ...

    async def stage(self, weights: StagedWeights) -> str:
        """Load a version beside the active one; the digest of the tensors that it now holds."""
        ...

    async def activate(self, policy: str, policy_version: int) -> None:
        """Serve a staged version; raises VersionNotLoadedError. Idempotent."""
        ...

    async def discard(self, policy: str, policy_version: int) -> None:
        """Drop a staged version, or unload an old one after its last request. Idempotent."""
        ...

    def policies(self) -> list[PolicyState]:
        """The policies that are loaded."""
        ...

    def num_in_flight(self) -> int:
        """Candidates queued or being generated."""
        ...

    def is_ready(self) -> bool:
        """False while the engine can't answer, for example while its server restarts."""
        ...

    async def stop(self) -> None:
        """Finish what is in flight and free everything."""
        ...
