"""Work that an accelerator lacks memory for: done once more after its cache was freed, or refused.

Owns the one repetition and the sentence that says what to change. Memory that the host lacks is not
looked at: it is shared with other processes, and the trainer is started again.
"""

from collections.abc import Callable
from typing import TypeVar

import torch

from troupe.errors import JobFailedError
from troupe.runtime.telemetry.logging import get_logger
from troupe.spec.fit import ways_to_need_less
from troupe.spec.job import JobSpec
from troupe_trainer.model.ranks.group import Ranks
from troupe_trainer.model.relocation import free_cache

_log = get_logger(__name__)
_T = TypeVar("_T")
_ADVICE = " If reserved but unallocated memory"  # of PyTorch, for its own settings


class DeviceMemory:
    """The memory of the device that ``policy`` learns on."""

    def __init__(self, policy: str, spec: JobSpec, device: torch.device, ranks: Ranks) -> None:
        self._policy = policy
        self._spec = spec
        self._device = device
        self._ranks = ranks
        self.doing = ""
        """What memory is asked for: the newest pass or the optimizer's step."""

    def repeat(self, work: Callable[[], _T], undo: Callable[[], None] | None = None) -> _T:
        """Do ``work``; where memory runs out, ``undo`` it, free the cache and do it once more.

        Over several ranks it is done once: the others would not repeat their collectives.

        Raises:
            JobFailedError: memory runs out again. It was undone.
        """
        if self._ranks.size > 1:
            return work()
        try:
            return work()
        except torch.OutOfMemoryError as error:
            reason = _reason(error)
        # Not in the handler: the error's traceback holds the tensors of the pass.
        _log.warning("memory.exhausted", policy=self._policy, doing=self.doing, error=reason)
        self._undo(undo)
        try:
            return work()
        except torch.OutOfMemoryError as error:
            reason = _reason(error)
        self._undo(undo)
        raise JobFailedError(self._refusal(reason))

    def _undo(self, undo: Callable[[], None] | None) -> None:
        if undo is not None:
            undo()
        free_cache(self._device)

    def _refusal(self, reason: str) -> str:
        ways = [
            f"lower batch.tokens_per_row (a pass may hold {self._spec.batch.budget} tokens now)",
            *ways_to_need_less(self._spec),
        ]
        return (
            f"Policy '{self._policy}' ran out of memory on {self._device} in {self.doing}, and "
            f"again after the cache was freed: {reason} Submit the job anew: {', or '.join(ways)}; "
            "`troupe export` writes the weights that it can start from. If another process took "
            "the memory, end that and resume the job."
        )


def _reason(error: torch.OutOfMemoryError) -> str:
    """PyTorch's own words, up to its advice."""
    return f"{str(error).partition(_ADVICE)[0].rstrip('. ')}."
