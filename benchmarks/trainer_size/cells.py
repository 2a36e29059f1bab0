"""What attention computes of drawn groups beside what tokens see, and how large micro-batches are.

A token sees itself and what comes before it in its own sequence: position + 1 cells.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from troupe.candidates import Sample
from troupe.spec.batch import BatchSpec
from troupe_trainer.model.packing import TREE_TOKENS, Microbatch, pack
from troupe_trainer.model.tree_attention import attended_cells
from troupe_trainer.samples import PromptSamples

BUDGETS = (200, 1024, 4096, 16384)
MOST_COMPLETIONS = 16
Cells = NDArray[np.float64]


@dataclass(frozen=True)
class Counted:
    """Ratios: the largest over a micro-batch's blocks of segments, which are those of more than
    TREE_TOKENS tokens; the largest over a whole group with a sequence of more, whose short rest may
    be trees; the largest over its trees; that of all draws together. ``above``: micro-batches above
    their budget that can be split."""

    microbatches: int
    segments: float
    group: float
    trees: float
    overall: float
    above: int


def count_cells(draws: int) -> Counted:
    """Lay out ``draws`` groups of random sizes, with several budgets."""
    rng = random.Random(0)
    segments = trees = group_most = 0.0
    microbatches = above = 0
    total = np.zeros(2)
    for number in range(draws):
        most = (60, 900, 5000)[number % 3]
        prompt = rng.randrange(1, most)
        lengths = [rng.randrange(1, most) for _ in range(rng.randrange(1, MOST_COMPLETIONS))]
        is_long = prompt + max(lengths) > TREE_TOKENS
        group = samples_of(prompt, lengths, rng)
        for budget in BUDGETS:
            of_group = np.zeros(2)
            for batch in pack([group], BatchSpec(tokens_per_row=budget, rows_per_microbatch=1)):
                microbatches += 1
                above += len(batch.tokens_M) > budget and len(batch.samples) > 1
                by_segments, by_trees = _cells(batch)
                segments = max(segments, _ratio(by_segments))
                trees = max(trees, _ratio(by_trees))
                of_group += by_segments + by_trees
            group_most = max(group_most, _ratio(of_group) if is_long else 0.0)
            total += of_group
    return Counted(microbatches, segments, group_most, trees, _ratio(total), above)


def _cells(batch: Microbatch) -> tuple[Cells, Cells]:
    """Attended and visible cells of the segments, which come first, and of the trees."""
    num_long = len(batch.segments)
    attended = attended_cells(replace(batch, lengths=batch.lengths[:num_long]))
    seen = batch.positions_M.astype(np.int64) + 1
    place = sum(map(sum, batch.segments))
    return (
        np.array([attended, seen[:place].sum()], dtype=float),
        np.array([attended_cells(batch) - attended, seen[place:].sum()], dtype=float),
    )


def _ratio(cells: Cells) -> float:
    return float(cells[0] / cells[1]) if cells[1] else 0.0


def samples_of(prompt: int, lengths: list[int], rng: random.Random) -> PromptSamples:
    """A prompt of so many tokens with completions of such lengths, of random tokens."""
    return PromptSamples(np.full(prompt, 7, dtype=np.int64), list(_samples(lengths, rng)))


def _samples(lengths: list[int], rng: random.Random) -> Iterator[Sample]:
    for length in lengths:
        logprobs = np.zeros(length, dtype=np.float32)
        tokens = [rng.randrange(50) for _ in range(length)]
        yield Sample(
            0, 0.0, length, False, token_ids=tokens, rollout_logprobs=logprobs, advantage=1.0
        )
