"""One request inside the engine, from the queue to its last candidate.

Owns the hand-over between the event loop and the worker thread: the loop makes a `Job` and may
cancel it; the worker alone fills it.
"""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Literal

from troupe.spec.job import SamplingSpec


@dataclass(frozen=True, slots=True)
class Completion:
    """Sampled tokens of one candidate with their log-probabilities."""

    token_ids: list[int]
    logprobs: list[float]
    finish_reason: Literal["stop", "length"]


@dataclass(eq=False, slots=True)
class Job:
    """``max_new_tokens`` is already cut to the model's context."""

    prompt: tuple[int, ...]
    num_candidates: int
    sampling: SamplingSpec
    max_new_tokens: int
    seed: int
    hits_stop: Callable[[Sequence[int]], bool] | None
    """Whether the completion so far contains a stop string; None without stop strings."""
    future: "Future[list[Completion]]" = field(default_factory=lambda: Future[list[Completion]]())
    is_cancelled: bool = False
    started_at: float = 0.0
    compute_s: float = 0.0
    _done: dict[int, Completion] = field(default_factory=dict[int, Completion])

    def begin(self) -> None:
        """The worker takes the job up."""
        self.started_at = time.monotonic()

    def finish(self, index: int, completion: Completion) -> None:
        """One candidate is complete; the last one resolves the future."""
        self._done[index] = completion
        if len(self._done) == self.num_candidates:
            self.compute_s = time.monotonic() - self.started_at
            if self.future.set_running_or_notify_cancel():
                self.future.set_result([self._done[i] for i in range(self.num_candidates)])

    def fail(self, error: BaseException) -> None:
        """The job can't be answered."""
        if not self.future.done() and self.future.set_running_or_notify_cancel():
            self.future.set_exception(error)
