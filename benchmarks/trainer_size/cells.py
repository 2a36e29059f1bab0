"""What attention computes of drawn groups beside what tokens see, and how large micro-batches are.

A token sees itself and what comes before it in its own sequence: position + 1 cells.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from troupe.candidates import Sample
from troupe.spec.job import BatchSpec
from troupe_trainer.model.packing import TREE_TOKENS, pack
from troupe_trainer.model.tree_attention import attended_cells
from troupe_trainer.samples import PromptSamples

BUDGETS = (200, 1024, 4096, 16384)
MOST_COMPLETIONS = 16


@dataclass(frozen=True)
class Counted:
    """The largest ratios over groups whose longest sequence has more than TREE_TOKENS tokens, and
    over shorter ones; ``above``: micro-batches above their budget that can be split."""

    microbatches: int
    long: float
    short: float
    above: int


def count_cells(draws: int) -> Counted:
    """Lay out ``draws`` groups of random sizes, with several budgets."""
    rng = random.Random(0)
    ratios: dict[bool, float] = {True: 0.0, False: 0.0}
    microbatches = above = 0
    for number in range(draws):
        most = (60, 900, 5000)[number % 3]
        prompt = rng.randrange(1, most)
        lengths = [rng.randrange(1, most) for _ in range(rng.randrange(1, MOST_COMPLETIONS))]
        is_long = prompt + max(lengths) > TREE_TOKENS
        group = samples_of(prompt, lengths, rng)
        for budget in BUDGETS:
            attended = visible = 0
            for batch in pack([group], BatchSpec(tokens_per_row=budget, rows_per_microbatch=1)):
                microbatches += 1
                above += len(batch.tokens_M) > budget and len(batch.samples) > 1
                attended += attended_cells(batch)
                visible += int((batch.positions_M.astype(np.int64) + 1).sum())
            ratios[is_long] = max(ratios[is_long], attended / visible)
    return Counted(microbatches, ratios[True], ratios[False], above)


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
