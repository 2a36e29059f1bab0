"""A request to a model, whatever its format."""

from dataclasses import dataclass, replace

from troupe.tasks.content import ImagePart
from troupe.tasks.family import (
    BoundedObservation,
    Message,
    Observation,
    in_hermes_form,
    observed_images,
)
from troupe.tasks.tool_calls import Tool


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """One request, whatever its format.

    ``messages`` are in order, as a chat template takes them; ``system`` is the whole first system
    text as the program wrote it, or the first message's where there is none. ``max_tokens`` bounds
    the answer; ``overridden`` names fields that the policy does not follow.
    """

    model: str
    messages: tuple[Message, ...]
    system: str
    tools: tuple[Tool, ...] = ()
    stop: tuple[str, ...] = ()
    is_stream: bool = False
    wants_usage: bool = False
    max_tokens: int | None = None
    overridden: tuple[str, ...] = ()

    @property
    def observation(self) -> Observation:
        """What the policy is asked: tools, calls and results for its model's own chat template."""
        if self.tools or self.max_tokens is not None:
            return BoundedObservation(self.messages, self.max_tokens, self.tools)
        return self.messages

    @property
    def images(self) -> tuple[ImagePart, ...]:
        """The images of its messages, in order."""
        return observed_images(self.messages)

    def without_images(self) -> "ModelRequest":
        """The same with its texts alone: an answered call need not hold megabytes of pixels."""
        if not self.images:
            return self
        return replace(self, messages=tuple(replace(m, content=m.text) for m in self.messages))

    @property
    def turns(self) -> tuple[tuple[str, str], ...]:
        """The same as (role, text), tools, calls and results in Hermes form."""
        return tuple((m.role, m.text) for m in in_hermes_form(self.observation))


@dataclass(frozen=True, slots=True)
class CallKey:
    """What is asked, and how often the same was asked before in this life."""

    digest: str
    occurrence: int

    def __str__(self) -> str:
        return f"{self.digest}{self.occurrence}"
