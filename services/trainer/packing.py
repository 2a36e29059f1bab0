"""Lays completions out so that nothing is computed twice: one prompt, then a tree of completions.

The completions of a prompt share it, and share every beginning that they have in common. A
token attends to its own beginning only, and its position continues from it, so each log
probability is the one that the sequence would have alone. A completion's last token predicts
nothing and is left out of the input. Owns layout in numpy; never sees a model.

Shape suffixes: R rows, T tokens of a row, N trained tokens of a micro-batch, B tokens of a block.
"""
# ruff: noqa: N815 (array names carry shape suffixes)

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from services.trainer.samples import PromptSamples, Sample
from troupe.spec.job import BatchSpec

Ints = NDArray[np.int64]
Floats = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Block:
    """One prompt and the tree of its completions, each subtree in one piece (depth first).

    ``ends_B`` holds, for each token, the end of its subtree: it is seen by itself and by the
    tokens from there to its end. ``predictors_N`` holds the place whose output predicts each
    trained token.
    """

    tokens_B: Ints
    positions_B: Ints
    ends_B: Ints
    predictors_N: Ints
    samples: PromptSamples


@dataclass(frozen=True, slots=True)
class Microbatch:
    """Rows for one forward pass and, flat over rows, what to learn from which output.

    Token i of row r sees token j when ``j <= i < ends_R_T[r, j]``, so padding sees only itself;
    ``predictors_N`` indexes the R * T outputs; ``sequence_N`` indexes ``samples``.
    ``num_tokens`` counts the tokens without padding.
    """

    tokens_R_T: Ints
    positions_R_T: Ints
    ends_R_T: Ints
    predictors_N: Ints
    targets_N: Ints
    rollout_logprobs_N: Floats
    advantages_N: Floats
    temperatures_N: Floats
    sequence_N: Ints
    samples: Sequence[Sample]
    num_tokens: int


def pack(
    prompts: Sequence[PromptSamples], batch: BatchSpec, *, shares_prompts: bool = True
) -> Iterator[Microbatch]:
    """Micro-batches that hold every sample once, each within a budget of tokens.

    The budget, padding included, is ``tokens_per_row * rows_per_microbatch``. The layout depends
    on the arguments alone. A block longer than ``tokens_per_row`` gets a row of its own, and one
    longer than the budget a micro-batch of its own. Without ``shares_prompts`` each completion
    is laid out with its own copy of the prompt: plain sequences, for kernels that know no trees.
    """
    if not shares_prompts:
        prompts = [PromptSamples(p.prompt, [s]) for p in prompts for s in p.samples]
    rows = fill_rows([build_block(p) for p in prompts], batch.tokens_per_row)
    budget = batch.tokens_per_row * batch.rows_per_microbatch
    while rows:
        width = _width(rows[0])  # the first row is the widest of those that are left
        count = max(1, min(batch.rows_per_microbatch, budget // width))
        yield _microbatch(rows[:count])
        rows = rows[count:]


def build_block(samples: PromptSamples) -> Block:
    """The tree of one prompt's completions, depth first.

    In sorted order a completion shares with the tree what it shares with the one before it.
    """
    num_prompt = len(samples.prompt)
    paths = [np.array(sample.token_ids[:-1], dtype=np.int64) for sample in samples.samples]
    order = sorted(range(len(paths)), key=lambda i: tuple(samples.samples[i].token_ids[:-1]))
    tokens, depths = [samples.prompt], [np.arange(num_prompt)]
    ends = np.zeros(num_prompt + sum(map(len, paths)), dtype=np.int64)
    places: list[Ints] = [np.empty(0, dtype=np.int64)] * len(paths)
    size, before, at = num_prompt, paths[order[0]][:0], np.empty(0, dtype=np.int64)
    for i in order:
        path = paths[i]
        shared = _common(before, path)
        ends[at[shared:]] = size
        added = np.arange(size, size + len(path) - shared)
        tokens.append(path[shared:])
        depths.append(num_prompt + np.arange(shared, len(path)))
        size += len(added)
        before, at = path, np.concatenate([at[:shared], added])
        places[i] = at
    ends[at] = size
    ends[:num_prompt] = size
    root = np.array([num_prompt - 1])
    return Block(
        tokens_B=np.concatenate(tokens),
        positions_B=np.concatenate(depths),
        ends_B=ends[:size],
        predictors_N=np.concatenate([part for place in places for part in (root, place)]),
        samples=samples,
    )


def fill_rows(blocks: Sequence[Block], tokens_per_row: int) -> list[list[Block]]:
    """First fit, longest block first: rows of at most ``tokens_per_row`` tokens where possible.

    No row holds more tokens than the wider of ``tokens_per_row`` and the first row.
    """
    rows: list[list[Block]] = []
    free: list[int] = []
    for block in sorted(blocks, key=lambda b: -len(b.tokens_B)):
        size = len(block.tokens_B)
        row = next((r for r, space in enumerate(free) if space >= size), None)
        if row is None:
            row = len(rows)
            rows.append([])
            free.append(max(tokens_per_row, size))
        rows[row].append(block)
        free[row] -= size
    return sorted(rows, key=lambda row: -_width(row))


def _width(row: Sequence[Block]) -> int:
    return sum(len(block.tokens_B) for block in row)


def _common(one: Ints, other: Ints) -> int:
    """Length of the beginning that both share."""
    size = min(len(one), len(other))
    differs = np.flatnonzero(one[:size] != other[:size])
    return int(differs[0]) if len(differs) else size


def _microbatch(rows: Sequence[Sequence[Block]]) -> Microbatch:
    width = max(map(_width, rows))
    tokens_R_T = np.zeros((len(rows), width), dtype=np.int64)
    positions_R_T = np.zeros((len(rows), width), dtype=np.int64)
    ends_R_T = np.tile(np.arange(1, width + 1), (len(rows), 1))
    predictors: list[Ints] = []
    for r, row in enumerate(rows):
        start = 0
        for block in row:
            end = start + len(block.tokens_B)
            tokens_R_T[r, start:end] = block.tokens_B
            positions_R_T[r, start:end] = block.positions_B
            ends_R_T[r, start:end] = block.ends_B + start
            predictors.append(block.predictors_N + (r * width + start))
            start = end
    samples = [s for row in rows for block in row for s in block.samples.samples]
    lengths = [len(s.token_ids) for s in samples]
    return Microbatch(
        tokens_R_T=tokens_R_T,
        positions_R_T=positions_R_T,
        ends_R_T=ends_R_T,
        predictors_N=np.concatenate(predictors),
        targets_N=np.concatenate([np.asarray(s.token_ids, dtype=np.int64) for s in samples]),
        rollout_logprobs_N=np.concatenate([s.rollout_logprobs for s in samples]),
        advantages_N=np.repeat([np.float32(s.advantage) for s in samples], lengths),
        temperatures_N=np.repeat([np.float32(s.temperature) for s in samples], lengths),
        sequence_N=np.repeat(np.arange(len(samples)), lengths),
        samples=samples,
        num_tokens=sum(map(_width, rows)),
    )
