"""Lays completions out so that no prompt is computed twice: one prompt, then its completions.

A token attends to its own prefix only, and its position continues from it, so each log probability
is the one that the sequence would have alone. A completion's last token predicts nothing and is
left out of the input. Short completions form a tree, which has every common prefix once and is
attended to under a mask; the mask grows with the square of the tree, so long ones lie side by side
as segments, which need none. Owns layout in numpy; never sees a model.

Shape suffixes: M tokens of a micro-batch, N trained ones of them, B tokens of a block.
"""
# ruff: noqa: N815 (array names carry shape suffixes)

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from troupe.candidates import Sample
from troupe.spec.batch import BatchSpec
from troupe.tasks.content import ImagePart
from troupe.vision.layout import grid_of, num_patches
from troupe.vision.model import VisionModel
from troupe_trainer.samples import PromptSamples

Ints = NDArray[np.int64]
SmallInts = NDArray[np.int32]
"""What is kept for a whole step takes half the memory."""
TREE_TOKENS = 512
"""A longer block is laid out as segments. Up to here attention is about 2 % of a pass through a
model of 8B: 512 pairs a token, where the linear layers take as long as some 23,000 pairs."""
Floats = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Block:
    """One prompt and the tree of its completions, each subtree in one piece (depth first).

    ``ends_B`` holds, for each token, the end of its subtree: it is seen by itself and by the
    tokens from there to its end. ``predictors_N`` holds the place whose output predicts each
    trained token. ``segments``: lengths of the prompt and of each completion where they lie side by
    side, or of the only sequence; empty for a tree.
    """

    tokens_B: SmallInts
    positions_B: SmallInts
    ends_B: SmallInts
    predictors_N: SmallInts
    samples: PromptSamples
    segments: Sequence[int] = ()


@dataclass(frozen=True, slots=True)
class ImageBlock:
    """A block of a micro-batch whose prompt has images: its tokens, of which the first
    ``num_prompt`` are the prompt, and its images in their order there."""

    tokens: slice
    num_prompt: int
    images: Sequence[ImagePart]


@dataclass(frozen=True, slots=True)
class Microbatch:
    """Blocks laid end to end for one forward pass, and the targets of its outputs.

    Token i sees token j when ``j <= i < ends_M[j]``. ``lengths`` are the blocks', longest first;
    the first of them are those of ``segments``, and the others are trees.
    ``predictors_N`` indexes the M outputs and ``sequence_N`` indexes ``samples``. ``positions_M``
    counts the tokens before each; a vision-language model has its own positions, see ``vision``.
    ``teacher_logprobs_N`` came with the samples, where rollout replicas serve the teacher.
    """

    tokens_M: Ints
    positions_M: Ints
    ends_M: Ints
    lengths: Sequence[int]
    predictors_N: Ints
    targets_N: Ints
    rollout_logprobs_N: Floats
    advantages_N: Floats
    temperatures_N: Floats
    sequence_N: Ints
    samples: Sequence[Sample]
    segments: Sequence[Sequence[int]] = ()
    image_blocks: Sequence[ImageBlock] = ()
    teacher_logprobs_N: Floats | None = None


def pack(
    prompts: Sequence[PromptSamples], batch: BatchSpec, *, shares_prompts: bool = True
) -> Iterator[Microbatch]:
    """The micro-batches of ``lay_out``, one after another."""
    return map(microbatch, lay_out(prompts, batch, shares_prompts=shares_prompts))


def one_sequence(token_ids: Sequence[int], images: Sequence[ImagePart]) -> Microbatch:
    """``token_ids`` as a prompt, the last as its completion: M is one less than their number."""
    last = Sample(0, 0.0, 1, False, token_ids=token_ids[-1:], rollout_logprobs=[0.0])
    prompt = PromptSamples(np.array(token_ids[:-1], dtype=np.int32), [last], images)
    return microbatch([block_of(prompt)])


def lay_out(
    prompts: Sequence[PromptSamples],
    batch: BatchSpec,
    *,
    shares_prompts: bool = True,
    trained_vision: VisionModel | None = None,
) -> list[list[Block]]:
    """The blocks of each micro-batch: every sample once, each within a budget of tokens.

    The budget is ``tokens_per_row * rows_per_microbatch``. A prompt whose completions are longer
    together is split by completion, and the prompt is computed for each part; only a sequence that
    is longer alone exceeds the budget. The layout depends on the arguments alone. Without
    ``shares_prompts`` each completion is laid out with its own copy of the prompt: plain sequences,
    for kernels without tree support.

    ``trained_vision``: a vision tower that is trained keeps activations of each patch, so a patch
    takes the place of a token; a block may then exceed the budget by its own images. A frozen tower
    keeps none.
    """
    if not shares_prompts:
        prompts = [replace(p, samples=[s]) for p in prompts for s in p.samples]
    budget = batch.budget
    blocks = [block for p in prompts for block in _within(p, budget)]
    return fill(blocks, budget, trained_vision)


def block_of(samples: PromptSamples) -> Block:
    """One prompt's completions: a tree of at most TREE_TOKENS tokens, or else segments."""
    sizes = [len(s.token_ids) - 1 for s in samples.samples]
    if len(samples.prompt) + max(sizes) <= TREE_TOKENS:
        tree = build_block(samples)
        if len(tree.tokens_B) <= TREE_TOKENS:
            return tree
    return build_segments(samples)


def _within(samples: PromptSamples, budget: int) -> Iterator[Block]:
    """Blocks of at most ``budget`` tokens, or of a single completion, that hold all samples."""
    block = block_of(samples)
    if len(block.tokens_B) <= budget or len(samples.samples) == 1:
        yield block
        return
    for part in _halves(samples) if not block.segments else _bins(samples, budget):
        yield from _within(replace(samples, samples=part), budget)


def _halves(samples: PromptSamples) -> Sequence[Sequence[Sample]]:
    """The completions in two parts; those with a common beginning stay together."""
    order = sorted(samples.samples, key=lambda sample: list(sample.token_ids))
    return order[: len(order) // 2], order[len(order) // 2 :]


def _bins(samples: PromptSamples, budget: int) -> Sequence[Sequence[Sample]]:
    """First fit, longest first: completions that fit into the budget beside their prompt."""
    space = budget - len(samples.prompt)
    bins: list[list[Sample]] = []
    free: list[int] = []
    for sample in sorted(samples.samples, key=lambda s: -len(s.token_ids)):
        size = len(sample.token_ids) - 1
        place = next((i for i, left in enumerate(free) if left >= size), None)
        if place is None:
            place = len(bins)
            bins.append([])
            free.append(space)
        bins[place].append(sample)
        free[place] -= size
    return bins


def build_segments(samples: PromptSamples) -> Block:
    """One prompt and its completions side by side; a single completion continues its prompt."""
    num_prompt = len(samples.prompt)
    paths = [np.asarray(sample.token_ids[:-1], dtype=np.int32) for sample in samples.samples]
    bounds = np.cumsum([num_prompt, *map(len, paths)]).tolist()
    steps = list(pairwise(bounds))
    ends = np.repeat([bounds[-1], *bounds[1:]], [num_prompt, *map(len, paths)])
    root = _range(num_prompt - 1, num_prompt)
    lengths = [num_prompt, *(len(path) for path in paths if len(path))]
    return Block(
        tokens_B=np.concatenate([samples.prompt, *paths], dtype=np.int32),
        positions_B=np.concatenate(
            [_range(0, num_prompt), *(_range(num_prompt, num_prompt + len(p)) for p in paths)]
        ),
        ends_B=ends.astype(np.int32),
        predictors_N=np.concatenate([part for step in steps for part in (root, _range(*step))]),
        samples=samples,
        segments=lengths if len(paths) > 1 else [bounds[-1]],
    )


def build_block(samples: PromptSamples) -> Block:
    """The tree of one prompt's completions, depth first.

    In sorted order a completion shares with the tree its common prefix with the previous one.
    """
    num_prompt = len(samples.prompt)
    paths = [np.asarray(sample.token_ids[:-1], dtype=np.int32) for sample in samples.samples]
    order = sorted(range(len(paths)), key=lambda i: paths[i].tolist())
    tokens, depths = [samples.prompt.astype(np.int32)], [_range(0, num_prompt)]
    ends = np.zeros(num_prompt + sum(map(len, paths)), dtype=np.int32)
    places: list[SmallInts] = [np.empty(0, dtype=np.int32)] * len(paths)
    size, before, at = num_prompt, paths[order[0]][:0], np.empty(0, dtype=np.int32)
    for i in order:
        path = paths[i]
        shared = _common(before, path)
        ends[at[shared:]] = size
        added = _range(size, size + len(path) - shared)
        tokens.append(path[shared:])
        depths.append(_range(num_prompt + shared, num_prompt + len(path)))
        size += len(added)
        before, at = path, np.concatenate([at[:shared], added])
        places[i] = at
    ends[at] = size
    ends[:num_prompt] = size
    root = _range(num_prompt - 1, num_prompt)
    return Block(
        tokens_B=np.concatenate(tokens),
        positions_B=np.concatenate(depths),
        ends_B=ends[:size],
        predictors_N=np.concatenate([part for place in places for part in (root, place)]),
        samples=samples,
    )


def fill(
    blocks: Sequence[Block], budget: int, trained_vision: VisionModel | None = None
) -> list[list[Block]]:
    """First fit, longest block first: at most ``budget`` tokens and patches of a trained tower
    together, or one longer block."""
    batches: list[list[Block]] = []
    free: list[int] = []
    for block in sorted(blocks, key=lambda b: -len(b.tokens_B)):
        size = len(block.tokens_B) + _num_patches(block, trained_vision)
        place = next((i for i, space in enumerate(free) if space >= size), None)
        if place is None:
            place = len(batches)
            batches.append([])
            free.append(max(budget, size))
        batches[place].append(block)
        free[place] -= size
    return batches


def _num_patches(block: Block, trained_vision: VisionModel | None) -> int:
    if trained_vision is None:
        return 0
    images = block.samples.images
    return sum(num_patches(grid_of(i.width, i.height, trained_vision)) for i in images)


def _range(start: int, stop: int) -> SmallInts:
    return np.arange(start, stop, dtype=np.int32)


def _common(first: SmallInts, second: SmallInts) -> int:
    """Length of the common prefix."""
    size = min(len(first), len(second))
    differs = np.flatnonzero(first[:size] != second[:size])
    return int(differs[0]) if len(differs) else size


def microbatch(blocks: Sequence[Block]) -> Microbatch:
    """The arrays of one forward and backward pass over ``blocks``."""
    lengths = [len(block.tokens_B) for block in blocks]
    starts = np.cumsum([0, *lengths[:-1]])
    samples = [s for block in blocks for s in block.samples.samples]
    sizes = [len(s.token_ids) for s in samples]
    placed = list(zip(starts, blocks, strict=True))
    return Microbatch(
        tokens_M=np.concatenate([b.tokens_B for b in blocks], dtype=np.int64),
        positions_M=np.concatenate([b.positions_B for b in blocks], dtype=np.int64),
        ends_M=np.concatenate([b.ends_B + start for start, b in placed]),
        lengths=lengths,
        predictors_N=np.concatenate([b.predictors_N + start for start, b in placed]),
        targets_N=np.concatenate([np.asarray(s.token_ids, dtype=np.int64) for s in samples]),
        rollout_logprobs_N=np.concatenate([s.rollout_logprobs for s in samples]),
        advantages_N=np.repeat([np.float32(s.advantage) for s in samples], sizes),
        temperatures_N=np.repeat([np.float32(s.temperature) for s in samples], sizes),
        sequence_N=np.repeat(np.arange(len(samples)), sizes),
        samples=samples,
        segments=[block.segments for block in blocks if block.segments],
        image_blocks=[
            ImageBlock(
                slice(start, start + len(b.tokens_B)), len(b.samples.prompt), b.samples.images
            )
            for start, b in placed
            if b.samples.images
        ],
        teacher_logprobs_N=_scored(samples),
    )


def _scored(samples: Sequence[Sample]) -> Floats | None:
    """What a teacher's replicas think of each token; None unless they scored all of them."""
    if any(len(s.teacher_logprobs) != len(s.token_ids) for s in samples):
        return None
    return np.concatenate([s.teacher_logprobs for s in samples], dtype=np.float32)
