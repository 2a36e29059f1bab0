"""How a trainer lays a step's sequences out, and how it adds their gradients up."""

from typing import Literal

from pydantic import Field

from troupe.spec.base import SpecModel
from troupe.spec.policy import LoraSpec, PolicySpec

_TOKENS_PER_ROW = 512


class BatchSpec(SpecModel):
    """How sequences are laid out for the trainer. Never changes what is learnt."""

    tokens_per_row: int | None = Field(
        default=None, ge=16, le=1_048_576, exclude_if=lambda tokens: tokens is None
    )
    """A forward and backward pass holds at most `tokens_per_row * rows_per_microbatch` tokens; a
    longer group is split by completion, and a single longer one gets a pass of its own. On a GPU
    the trainer takes fewer where more would not fit. Left out: 512, and on a GPU as many as fit,
    up to 16,384 tokens a pass."""
    rows_per_microbatch: int = Field(default=8, ge=1)
    """See `tokens_per_row`."""
    checkpoint_activations: bool | None = None
    """Compute activations again in the backward pass: about a third slower, in far less memory.
    Left out, a trainer on a GPU does so where the step would not fit otherwise."""
    overlap: bool | None = None
    """Sum gradients of finished tickets while others are still being played, with the same bits.
    Left out, a trainer on a GPU does so, and one on a CPU, whose cores engines may need, does not.
    An algorithm that compares across tickets waits for the round either way."""
    gradient_sums: Literal["exact", "in_turn"] | None = Field(
        default=None, exclude_if=lambda sums: sums is None
    )
    """How tickets' gradients are added up, with or without `overlap`. exact: as whole numbers, the
    same in any order, so no ticket waits for another, in 8 bytes a trained parameter on the
    trainer's device. in_turn: in the order of the tickets, in 4; of one that ended early the
    gradient waits on the host, within the trainer's room. Left out: exact for adapters, in_turn for
    full weights. It decides last bits. Over several ranks `exact` is refused, and nothing is early.
    """

    @property
    def budget(self) -> int:
        """Tokens of a pass at most."""
        return (self.tokens_per_row or _TOKENS_PER_ROW) * self.rows_per_microbatch

    def sums_exactly(self, policy: PolicySpec) -> bool:
        """Whether gradients of ``policy`` are summed exactly, on a trainer of one rank."""
        if self.gradient_sums is None:
            return isinstance(policy.train, LoraSpec)
        return self.gradient_sums == "exact"
