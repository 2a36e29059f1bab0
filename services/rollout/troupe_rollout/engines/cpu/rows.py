"""The requests of a batch, and the state of each row: one row a candidate.

Owns the state that sampling reads, the tokens that it writes, and the hand-over of finished
candidates to their request. Rows are arrays, so that a token costs no Python per row, and dense: a
finished row is overwritten by the last one. Legend: R rows, U uniforms, N new tokens.
"""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor

from troupe.candidates import Candidate
from troupe.spec.job import SamplingSpec
from troupe.tasks.content import ImagePart
from troupe_rollout.engines.cpu.pool import round_up
from troupe_rollout.engines.cpu.sampling import UNIFORM_BLOCK, Filters, candidate_stream


@dataclass(eq=False, slots=True)
class Job:
    """One request, from the queue to its last candidate.

    The event loop makes it and may cancel it; the worker thread alone fills it.
    ``max_new_tokens`` is already cut to the model's context. ``offset`` is added to the column of
    a token after the prompt for its position: the tokens of an image share positions.
    """

    prompt: tuple[int, ...]
    num_candidates: int
    sampling: SamplingSpec
    max_new_tokens: int
    seed: int
    hits_stop: Callable[[Sequence[int]], bool] | None
    """Whether the candidate so far contains a stop string; None without stop strings."""
    images: tuple[ImagePart, ...] = ()
    offset: int = 0
    follows_updates: bool = False
    future: "Future[list[Candidate]]" = field(default_factory=lambda: Future[list[Candidate]]())
    is_cancelled: bool = False
    started_at: float = 0.0
    compute_s: float = 0.0
    _done: dict[int, Candidate] = field(default_factory=dict[int, Candidate])

    @property
    def key(self) -> tuple[object, ...]:
        """Equal for equal prompts: images of one size have equal token ids."""
        return (self.prompt, *(image.digest for image in self.images))

    def begin(self) -> None:
        """The worker takes the job up."""
        self.started_at = time.monotonic()

    def finish(self, index: int, candidate: Candidate) -> None:
        """One candidate is complete; the last one resolves the future."""
        self._done[index] = candidate
        if len(self._done) == self.num_candidates:
            self.compute_s = time.monotonic() - self.started_at
            if self.future.set_running_or_notify_cancel():
                self.future.set_result([self._done[i] for i in range(self.num_candidates)])

    def fail(self, error: BaseException) -> None:
        """The job can't be answered."""
        if not self.future.done() and self.future.set_running_or_notify_cancel():
            self.future.set_exception(error)


@dataclass(frozen=True, slots=True)
class Owner:
    """The candidate that a row belongs to."""

    job: Job
    index: int
    stream: np.random.Generator
    past: tuple[tuple[int, int], ...] = ()
    """Versions that sampled its first tokens, in other batches, and how many each."""

    def spans(self, version: int, count: int) -> tuple[tuple[int, int], ...]:
        """The versions of its ``count`` tokens, of which ``version`` sampled the last ones."""
        return (*self.past, (version, count - sum(num for _, num in self.past)))


class Rows:
    """Row state for up to ``capacity`` rows, which ``version`` samples; grows by doubling."""

    def __init__(self, device: str, version: int) -> None:
        self.device = torch.device(device)
        self.version = version
        self.owners: list[Owner] = []
        self.capacity = 0
        self.width = 0
        self.last_token = self._new(torch.long)
        self.position = self._new(torch.long)
        self.offset = self._new(torch.long)
        self.count = self._new(torch.long)
        self.limit = self._new(torch.long)
        self.temperature = self._new(torch.float32)
        self.top_k = self._new(torch.long)
        self.top_p = self._new(torch.float64)
        self.uniforms_RU = self._new(torch.float64, UNIFORM_BLOCK)
        self.tokens_RN = self._new(torch.long, 0)
        self.logprobs_RN = self._new(torch.float32, 0)
        self.num_filtered = 0
        self.num_stoppable = 0

    def __len__(self) -> int:
        return len(self.owners)

    def add(self, job: Job) -> int:
        """Append a job's candidates; the first row's number. An error changes no row in use."""
        first, count = len(self.owners), job.num_candidates
        self._grow(first + count, job.max_new_tokens)
        rows = slice(first, first + count)
        streams = [candidate_stream(job.seed, index) for index in range(count)]
        uniforms = np.stack([stream.random(UNIFORM_BLOCK) for stream in streams])
        self.uniforms_RU[rows] = torch.from_numpy(uniforms).to(self.device)
        self.position[rows] = len(job.prompt)
        self.offset[rows] = job.offset
        self.count[rows] = 0
        self.limit[rows] = job.max_new_tokens
        self.temperature[rows] = job.sampling.temperature
        self.top_k[rows] = job.sampling.top_k
        self.top_p[rows] = job.sampling.top_p
        self.owners += [Owner(job, index, stream) for index, stream in enumerate(streams)]
        self.num_filtered += count * _is_filtered(job)
        self.num_stoppable += count * (job.hits_stop is not None)
        return first

    def adopt(self, other: "Rows", row: int) -> int:
        """Append a row of another version, to go on with it; its number here."""
        owner, count, new = other.owners[row], int(other.count[row]), len(self.owners)
        self._grow(new + 1, owner.job.max_new_tokens)
        past = owner.spans(other.version, count)
        self.owners.append(replace(owner, past=past))
        for name, array in self._arrays().items():
            source: Tensor = getattr(other, name)
            if name in ("tokens_RN", "logprobs_RN"):
                array[new, :count] = source[row, :count]
            else:
                array[new] = source[row]
        self.num_filtered += _is_filtered(owner.job)
        self.num_stoppable += owner.job.hits_stop is not None
        return new

    def filters(self, rows: slice) -> Filters:
        """How these rows sample."""
        return Filters(
            self.temperature[rows], self.top_k[rows], self.top_p[rows], self.num_filtered > 0
        )

    def next_uniforms(self, rows: slice) -> Tensor:
        """One unused draw for each of these rows."""
        column = self.count[rows] % UNIFORM_BLOCK
        used_up = (column == 0) & (self.count[rows] > 0)
        for offset in used_up.nonzero()[:, 0].tolist():
            row = rows.start + offset
            fresh = self.owners[row].stream.random(UNIFORM_BLOCK)
            self.uniforms_RU[row] = torch.from_numpy(fresh).to(self.device)
        return self.uniforms_RU[rows].gather(1, column[:, None])[:, 0]

    def record(self, rows: slice, tokens_R: Tensor, logprobs_R: Tensor) -> None:
        """Append one sampled token to each of these rows."""
        column_R1 = self.count[rows][:, None]
        self.tokens_RN[rows].scatter_(1, column_R1, tokens_R[:, None])
        self.logprobs_RN[rows].scatter_(1, column_R1, logprobs_R[:, None])
        self.last_token[rows] = tokens_R
        self.count[rows] += 1

    def token_ids(self, row: int) -> list[int]:
        """The tokens that a row has sampled."""
        return self.tokens_RN[row, : int(self.count[row])].tolist()

    def finish(self, row: int, *, is_stopped: bool) -> None:
        """Hand a row's candidate to its job; the engine decodes its text, off this thread."""
        owner, count = self.owners[row], int(self.count[row])
        candidate = Candidate(
            self.tokens_RN[row, :count].tolist(),
            self.logprobs_RN[row, :count].tolist(),
            "",
            "stop" if is_stopped else "length",
            owner.spans(self.version, count),
        )
        owner.job.finish(owner.index, candidate)

    def remove(self, row: int) -> int:
        """Drop a row; the last row takes its number. Returns the last row's old number."""
        job = self.owners[row].job
        self.num_filtered -= _is_filtered(job)
        self.num_stoppable -= job.hits_stop is not None
        last = len(self.owners) - 1
        if row != last:
            self.owners[row] = self.owners[last]
            for array in self._arrays().values():
                array[row] = array[last]
        self.owners.pop()
        return last

    def _grow(self, capacity: int, width: int) -> None:
        if capacity <= self.capacity and width <= self.width:
            return
        used = len(self.owners)
        capacity = max(capacity, 2 * self.capacity) if capacity > self.capacity else self.capacity
        width = max(self.width, round_up(width, 32))
        grown: dict[str, Tensor] = {}
        for name, array in self._arrays().items():
            columns = width if name in ("tokens_RN", "logprobs_RN") else array.shape[-1]
            shape = (capacity,) if array.dim() == 1 else (capacity, columns)
            grown[name] = array.new_zeros(shape)
            if array.dim() == 1:
                grown[name][:used] = array[:used]
            else:
                grown[name][:used, : array.shape[1]] = array[:used]
        vars(self).update(grown, capacity=capacity, width=width)

    def _arrays(self) -> dict[str, Tensor]:
        return {name: value for name, value in vars(self).items() if isinstance(value, Tensor)}

    def _new(self, dtype: torch.dtype, columns: int | None = None) -> Tensor:
        shape = (0,) if columns is None else (0, columns)
        return torch.zeros(shape, dtype=dtype, device=self.device)


def _is_filtered(job: Job) -> bool:
    sampling = job.sampling
    return sampling.temperature > 0 and (sampling.top_k > 0 or sampling.top_p < 1.0)
