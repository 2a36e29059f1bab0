"""Continuous batching for one version of one policy.

Owns prefill, decoding and the joining and leaving of rows. A request joins between two tokens;
a prompt is computed once for all its candidates, and once for equal prompts that join together.
Runs on the worker thread only.

A row's numbers do not depend on its neighbours (float32, one thread): prompts are padded on the
right to multiples of `COLUMN_BLOCK`, decoding always has a multiple of `ROW_BLOCK` rows, and the
output layer never sees fewer. Matrix kernels then use one summation order for every row.
"""

from collections import deque
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import Cache, DynamicCache

from troupe.vision.model import VisionModel
from troupe_rollout.engines.cpu.decoder import Decoder
from troupe_rollout.engines.cpu.images import ImagePrompts
from troupe_rollout.engines.cpu.pool import COLUMN_BLOCK, KvPool, round_up
from troupe_rollout.engines.cpu.rows import Job, Rows
from troupe_rollout.engines.cpu.sampling import sample

ROW_BLOCK = 8


class Batcher:
    """The rows of one model that are decoded together."""

    def __init__(
        self,
        module: Any,
        end_token_ids: tuple[int, ...],
        vision: VisionModel | None = None,
        *,
        version: int,
        device: str,
        max_rows: int,
        max_prefill_tokens: int,
        max_cells: int,
    ) -> None:
        """``max_cells`` bounds rows times columns of the key/value memory."""
        self._module = module
        self._seen = ImagePrompts(module, vision) if vision is not None else None
        self._decoder = Decoder(module) if Decoder.knows(module) else None
        self._device = torch.device(device)
        self._ends = torch.tensor(end_token_ids, dtype=torch.long, device=self._device)
        self._max_rows = max_rows
        self._max_prefill_tokens = max_prefill_tokens
        self._max_cells = max_cells
        self._rows = Rows(device, version)
        self._pool = KvPool()
        self._waiting: deque[Job] = deque()
        self._joining: list[Job] = []
        self._row_index = torch.empty(0, dtype=torch.long, device=self._device)
        self._column_index = torch.empty(0, dtype=torch.long, device=self._device)

    @property
    def is_idle(self) -> bool:
        """True when no request waits and no row is being decoded."""
        return not self._waiting and not len(self._rows)

    def enqueue(self, job: Job) -> None:
        """Wait for room; first come, first served."""
        self._waiting.append(job)

    def advance(self) -> None:
        """Let waiting requests join, then sample one token for every row."""
        self._drop_cancelled()
        self._joining = self._taken()
        for prompts in self._prefill_batches(self._joining):
            self._prefill(prompts)
        self._joining = []
        if len(self._rows):
            self._decode()
        if not len(self._rows):
            self._pool = KvPool()  # versions that are kept and idle hold none of their keys

    def hand_over(self, to: "Batcher") -> None:
        """Let what follows updates go on in ``to``, which computes with a newer version.

        Rows keep their keys and values, which this version computed (PipelineRL, arXiv 2509.19128):
        to compute them anew would stop every row for a pass over all that it has read and sampled.
        """
        for row in reversed(range(len(self._rows))):
            if self._rows.owners[row].job.follows_updates:
                to._adopt(self, row)
                self._remove(row)
        for job in [job for job in self._waiting if job.follows_updates]:
            self._waiting.remove(job)
            to.enqueue(job)

    def _adopt(self, other: "Batcher", row: int) -> None:
        new = self._rows.adopt(other._rows, row)
        job = self._rows.owners[new].job
        assert other._pool.cache is not None, "a row has keys and values"
        self._reserve(len(job.prompt) + job.max_new_tokens, other._pool.cache)
        self._pool.take(other._pool, row, new, int(self._rows.position[new]))

    def abandon(self, error: BaseException) -> None:
        """Fail everything; the lane is empty afterwards."""
        jobs = {id(owner.job): owner.job for owner in self._rows.owners}
        for job in [*jobs.values(), *self._joining, *self._waiting]:
            job.fail(error)
        self._waiting.clear()
        self._joining = []
        self._rows, self._pool = Rows(str(self._device), self._rows.version), KvPool()

    def _taken(self) -> list[Job]:
        """Take the waiting jobs that fit beside the present rows; a job alone always fits."""
        joining: list[Job] = []
        rows, columns = len(self._rows), self._pool.columns
        max_cells = max(self._max_cells, self._pool.rows * columns)  # which is there already
        while self._waiting:
            job = self._waiting[0]
            if job.is_cancelled:
                self._waiting.popleft()
                continue
            rows += job.num_candidates
            columns = max(columns, round_up(len(job.prompt) + job.max_new_tokens, COLUMN_BLOCK))
            cells = round_up(rows, ROW_BLOCK) * columns
            if not len(self._rows) and not joining:
                max_cells = max(max_cells, cells)
            elif rows > self._max_rows or cells > max_cells:
                break
            joining.append(self._waiting.popleft())
        return joining

    def _prefill_batches(self, joining: list[Job]) -> Iterator[list[list[Job]]]:
        """Jobs by prompt, prompts by padded length, within the budget of one pass."""
        by_prompt: dict[tuple[object, ...], list[Job]] = {}
        for job in joining:
            job.begin()
            by_prompt.setdefault(job.key, []).append(job)
        buckets: dict[int, list[list[Job]]] = {}
        for jobs in by_prompt.values():
            buckets.setdefault(round_up(len(jobs[0].prompt), COLUMN_BLOCK), []).append(jobs)
        for padded, prompts in sorted(buckets.items()):
            size = max(1, self._max_prefill_tokens // padded)
            for start in range(0, len(prompts), size):
                yield prompts[start : start + size]

    def _prefill(self, prompts: list[list[Job]]) -> None:
        lengths = [len(jobs[0].prompt) for jobs in prompts]
        logits_PV, cache = prefill(self._module, [jobs[0] for jobs in prompts], self._seen)
        first_row, order = len(self._rows), list[int]()
        for number, jobs in enumerate(prompts):
            for job in jobs:
                try:
                    row = self._rows.add(job)
                except Exception as error:  # of this job alone: the rows are as they were
                    job.fail(error)
                    continue
                self._reserve(lengths[number] + job.max_new_tokens, cache)
                self._pool.write(row, job.num_candidates, cache, number, lengths[number])
                order += [number] * job.num_candidates
        if order:
            index = torch.tensor(order, device=self._device)
            self._emit(slice(first_row, len(self._rows)), logits_PV[index])

    def _reserve(self, columns: int, like: Cache) -> None:
        """Room for all rows, and for more within the bounds, so that the pool seldom grows."""
        rows = round_up(len(self._rows), ROW_BLOCK)
        columns = max(self._pool.columns, round_up(columns, COLUMN_BLOCK))
        more = self._pool.rows if rows <= self._pool.rows else 2 * self._pool.rows
        more = min(more, self._max_rows, self._max_cells // columns) // ROW_BLOCK * ROW_BLOCK
        self._pool.reserve(max(rows, more), columns, like)
        if len(self._row_index) < self._pool.rows:
            self._row_index = torch.arange(self._pool.rows, device=self._device)
        if len(self._column_index) < self._pool.columns:
            self._column_index = torch.arange(self._pool.columns, device=self._device)

    def _decode(self) -> None:
        count = len(self._rows)
        padded = round_up(count, ROW_BLOCK)
        position = self._rows.position.new_zeros(padded)
        position[:count] = self._rows.position[:count]
        token = self._rows.last_token.new_zeros(padded)
        token[:count] = self._rows.last_token[:count]
        columns = round_up(int(position.max()) + 1, COLUMN_BLOCK)
        is_hidden = self._column_index[None, :columns] > position[:, None]
        mask = torch.zeros(is_hidden.shape, dtype=self._module.dtype, device=self._device)
        mask = mask.masked_fill_(is_hidden, -torch.inf)[:, None, None, :]
        cache = self._pool.bind(self._row_index[:padded], position, columns)
        offset = self._rows.offset.new_zeros(padded)
        offset[:count] = self._rows.offset[:count]
        logits_RV = self._logits(token, position + offset, mask, cache)
        self._rows.position[:count] += 1
        self._emit(slice(0, count), logits_RV[:count].float())

    def _logits(self, token: Tensor, position: Tensor, mask: Tensor, cache: Cache) -> Tensor:
        if self._decoder is not None:
            return self._decoder(token, position, mask, cache)
        output = self._module(
            input_ids=token[:, None],
            attention_mask=mask,
            position_ids=position[:, None],
            past_key_values=cache,
            use_cache=True,
            logits_to_keep=1,
        )
        return output.logits[:, -1]

    def _emit(self, rows: slice, logits_RV: Tensor) -> None:
        """Sample one token for each of these rows; complete and drop those that end."""
        uniforms = self._rows.next_uniforms(rows)
        tokens, logprobs = sample(logits_RV, self._rows.filters(rows), uniforms)
        self._rows.record(rows, tokens, logprobs)
        is_stopped = torch.isin(tokens, self._ends)
        is_ended = is_stopped | (self._rows.count[rows] >= self._rows.limit[rows])
        if self._rows.num_stoppable:
            for row in self._stop_hits(rows):
                is_stopped[row - rows.start] = is_ended[row - rows.start] = True
        ended = is_ended.nonzero()[:, 0].tolist()
        stopped = is_stopped.tolist() if ended else []
        for offset in reversed(ended):
            self._rows.finish(rows.start + offset, is_stopped=stopped[offset])
            self._remove(rows.start + offset)

    def _stop_hits(self, rows: slice) -> Iterator[int]:
        for row in range(rows.start, rows.stop):
            hits = self._rows.owners[row].job.hits_stop
            if hits is not None and hits(self._rows.token_ids(row)):
                yield row

    def _remove(self, row: int) -> None:
        length = int(self._rows.position[len(self._rows) - 1])
        last = self._rows.remove(row)
        if row != last:
            self._pool.move(last, row, length)

    def _drop_cancelled(self) -> None:
        for row in reversed(range(len(self._rows))):
            if self._rows.owners[row].job.is_cancelled:
                self._remove(row)


def prefill(module: Any, jobs: list[Job], seen: ImagePrompts | None) -> tuple[Tensor, DynamicCache]:
    """Logits after each job's prompt (P, V; float32) and the keys and values of all of them.

    Prompts are padded on the right; the model is causal, so padding is never attended to.
    """
    lengths = [len(job.prompt) for job in jobs]
    padded = round_up(max(lengths), COLUMN_BLOCK)
    ends = sorted({length - 1 for length in lengths})
    wanted = ends + ends[-1:] * max(0, ROW_BLOCK - len(ends))
    kept = torch.tensor(wanted, device=module.device)
    if seen is not None:
        logits_PEV, cache = seen.prefill([(job.prompt, job.images) for job in jobs], padded, kept)
    else:
        ids = torch.tensor([[*job.prompt, *[0] * (padded - len(job.prompt))] for job in jobs])
        output = module(input_ids=ids.to(module.device), use_cache=True, logits_to_keep=kept)
        logits_PEV, cache = output.logits, output.past_key_values
    where = torch.tensor([ends.index(length - 1) for length in lengths], device=module.device)
    index = torch.arange(len(jobs), device=module.device)
    return logits_PEV[index, where].float(), cache
