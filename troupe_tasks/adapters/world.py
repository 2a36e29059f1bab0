"""The protocol that an adapter implements: one live copy of a foreign, stateful environment."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from troupe.tasks.content import ImagePart


@dataclass(frozen=True, slots=True)
class Moment:
    """What a live environment shows after a reset or an action.

    ``prompts`` holds what each agent sees; an agent that is absent has nothing to decide now.
    ``images`` holds what some of them see beside it, before the words.
    ``rewards`` are what the last action brought each agent. ``info`` is JSON-serialisable.
    ``is_success`` holds if the episode ends here, which ``max_steps`` may do too.

    Example: ``Moment({"player": "cell 4 of 16"}, {"player": 0.0}, False, False)``.
    """

    prompts: Mapping[str, str]
    rewards: Mapping[str, float]
    is_done: bool
    is_success: bool
    info: Mapping[str, Any] = field(default_factory=dict[str, Any])
    images: Mapping[str, ImagePart] = field(default_factory=dict[str, ImagePart])


def is_paid_at_end(paid: float, total: float) -> bool:
    """Whether the last step was paid, as a goal is, and the steps before brought nothing in sum.

    Where each step is paid (CartPole), or none is, rewards do not tell how an episode ended.
    """
    return paid > 0 and total - paid <= 0


class World(Protocol):
    """One live copy of a foreign environment, owned by one caller at a time."""

    def reset(self, seed: int) -> Moment:
        """Begin an episode that ``seed`` determines."""
        ...

    def act(self, agent: str, action: Any) -> Moment:
        """Carry out a parsed action (a JSON value) of an agent whose turn it is."""
        ...

    def save(self) -> str | None:
        """All of the present state as text, or None where only a replay can restore it."""
        ...

    def restore(self, saved: str) -> None:
        """Take over what ``save`` gave; called after ``reset`` with the episode's seed."""
        ...

    def close(self) -> None:
        """Let go of what it holds."""
        ...
