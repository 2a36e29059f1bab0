"""Weights as rank 0 hands them on: whole, together or one at a time.

Owns the order in which ranks gather them, which is the same on each. Never sees a model, nor what
becomes of the tensors.
"""

from collections.abc import Callable, Iterable

from torch import Tensor

from troupe_trainer.model.ranks.exchange import gathered, is_spread


def whole_weights(tensors: Iterable[tuple[str, Tensor]]) -> dict[str, Tensor]:
    """CPU copies of whole tensors by name, on rank 0 alone."""
    copies = ((name, gathered(tensor)) for name, tensor in tensors)
    return {name: copy_.contiguous() for name, copy_ in copies if copy_ is not None}


def give_each(
    tensors: Iterable[tuple[str, Tensor]], take: Callable[[str, Tensor], None] | None
) -> None:
    """Give rank 0's ``take`` each whole tensor; the other ranks have none and send their rows.

    Where ``take`` fails, it gets no more and the error is raised at the end.
    """
    error: Exception | None = None
    whole: Tensor | None = None
    for name, tensor in tensors:
        whole = None  # the one before goes first
        whole = gathered(tensor) if is_spread(tensor) else tensor
        if take is None or whole is None or error is not None:
            continue  # another rank; or the others still send the rest
        try:
            take(name, whole.contiguous())
        except Exception as failure:
            error = failure
    if error is not None:
        try:
            raise error
        finally:
            error = None  # a cycle through this frame would keep what ``take`` holds
