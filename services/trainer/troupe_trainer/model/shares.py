"""What each rank computes of a minibatch: whole micro-batches, dealt out by rank 0.

Owns the deal and its form as arrays, in which it travels to the other ranks. Never sees a model.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from troupe.candidates import Sample
from troupe.tasks.content import ImagePart
from troupe_trainer.model.packing import Block, Microbatch, block_of, microbatch
from troupe_trainer.samples import PromptSamples

Arrays = Mapping[str, NDArray[Any]]


@dataclass(frozen=True, slots=True)
class Share:
    """One rank's part of a minibatch. ``counts``: whether each micro-batch is this rank's own.

    All ranks compute equally many, since their collectives must match; a rank with fewer computes
    a small one of another rank's, which does not count. ``denominator``: by what the whole
    minibatch's loss is divided; ``num_groups``: its groups, with those that have no gradient.
    """

    batches: Sequence[Sequence[Block]]
    counts: Sequence[bool]
    denominator: int
    num_groups: int

    def microbatches(self) -> Iterator[tuple[Microbatch, bool]]:
        """Each micro-batch, made when it is asked for, and whether it counts."""
        for blocks, counts in zip(self.batches, self.counts, strict=True):
            yield microbatch(blocks), counts

    def samples(self) -> Iterator[Sample]:
        """The completions of all micro-batches, in the order of the micro-batches' arrays."""
        for blocks in self.batches:
            for block in blocks:
                yield from block.samples.samples

    @property
    def num_samples(self) -> int:
        """Completions in all micro-batches."""
        return sum(len(block.samples.samples) for blocks in self.batches for block in blocks)


@dataclass(frozen=True, slots=True)
class Dealt:
    """The shares of every rank, by rank, each a share for each minibatch of the step.

    An argument of a method that runs on all ranks: each is sent, and receives, its own list.
    """

    shares: Sequence[Sequence[Share]]


def deal(
    minibatches: Sequence[Sequence[Sequence[Block]]],
    denominators: Sequence[int],
    num_groups: Sequence[int],
    num_ranks: int,
) -> Dealt:
    """Deal the micro-batches of each minibatch to the ranks in turn."""
    by_rank: list[list[Share]] = [[] for _ in range(num_ranks)]
    for batches, denominator, groups in zip(minibatches, denominators, num_groups, strict=True):
        small = min(batches, key=lambda blocks: sum(len(b.tokens_B) for b in blocks), default=())
        most = -(-len(batches) // num_ranks)
        for rank, shares in enumerate(by_rank):
            mine = batches[rank::num_ranks]
            missing = most - len(mine)
            counts = [True] * len(mine) + [False] * missing
            shares.append(Share([*mine, *[small] * missing], counts, denominator, groups))
    return Dealt(by_rank)


def to_arrays(shares: Sequence[Share]) -> Arrays:
    """``shares`` as arrays; see ``from_arrays``."""
    batches = [blocks for share in shares for blocks in share.batches]
    prompts = [b.samples for blocks in batches for b in blocks]
    samples = [s for prompt in prompts for s in prompt.samples]
    images = {image.digest: image for prompt in prompts for image in prompt.images}
    place = {digest: number for number, digest in enumerate(images)}
    return {
        "share_counts": np.array([len(share.batches) for share in shares], dtype=np.int64),
        "denominators": np.array([share.denominator for share in shares], dtype=np.int64),
        "num_groups": np.array([share.num_groups for share in shares], dtype=np.int64),
        "counts": np.array([c for share in shares for c in share.counts], dtype=np.uint8),
        "blocks": np.array([len(blocks) for blocks in batches], dtype=np.int64),
        "prompt_lengths": np.array([len(p.prompt) for p in prompts], dtype=np.int64),
        "prompt_samples": np.array([len(p.samples) for p in prompts], dtype=np.int64),
        "prompts": _joined([p.prompt for p in prompts], np.int32),
        "lengths": np.array([len(s.token_ids) for s in samples], dtype=np.int64),
        "advantages": np.array([s.advantage for s in samples], dtype=np.float64),
        "temperatures": np.array([s.temperature for s in samples], dtype=np.float64),
        "tokens": _joined([s.token_ids for s in samples], np.int32),
        "logprobs": _joined([s.rollout_logprobs for s in samples], np.float32),
        "scored": np.array([len(s.teacher_logprobs) for s in samples], dtype=np.int64),
        "teacher_logprobs": _joined([s.teacher_logprobs for s in samples], np.float32),
        "image_widths": np.array([image.width for image in images.values()], dtype=np.int64),
        "image_heights": np.array([image.height for image in images.values()], dtype=np.int64),
        "pixels": _joined([_pixels(image) for image in images.values()], np.uint8),
        "prompt_images": np.array([len(p.images) for p in prompts], dtype=np.int64),
        "images": np.array([place[i.digest] for p in prompts for i in p.images], dtype=np.int64),
    }


def from_arrays(arrays: Arrays) -> list[Share]:
    """The shares that ``to_arrays`` was given.

    A sample has what a micro-batch is made of, and no index in its group, reward or trajectory.
    """
    samples = iter(
        [
            Sample(
                0,
                0.0,
                len(tokens),
                False,
                token_ids=tokens,
                rollout_logprobs=logprobs,
                teacher_logprobs=scored,
                advantage=advantage,
                temperature=temperature,
            )
            for tokens, logprobs, scored, advantage, temperature in zip(
                _split(arrays["tokens"], arrays["lengths"]),
                _split(arrays["logprobs"], arrays["lengths"]),
                _split(arrays["teacher_logprobs"], arrays["scored"]),
                arrays["advantages"].tolist(),
                arrays["temperatures"].tolist(),
                strict=True,
            )
        ]
    )
    prompts = _split(arrays["prompts"], arrays["prompt_lengths"])
    blocks = iter(
        [
            block_of(PromptSamples(prompt, list(islice(samples, count)), images))
            for prompt, count, images in zip(
                prompts, arrays["prompt_samples"].tolist(), _images(arrays), strict=True
            )
        ]
    )
    batches = iter([list(islice(blocks, count)) for count in arrays["blocks"].tolist()])
    counts = iter(arrays["counts"].astype(bool).tolist())
    return [
        Share(list(islice(batches, number)), list(islice(counts, number)), denominator, groups)
        for number, denominator, groups in zip(
            *(arrays[name].tolist() for name in ("share_counts", "denominators", "num_groups")),
            strict=True,
        )
    ]


def _images(arrays: Arrays) -> Iterator[list[ImagePart]]:
    """The images of each prompt, in order."""
    widths, heights = arrays["image_widths"], arrays["image_heights"]
    table = [
        ImagePart(width, height, pixels.tobytes())
        for width, height, pixels in zip(
            widths.tolist(),
            heights.tolist(),
            _split(arrays["pixels"], 3 * widths * heights),
            strict=True,
        )
    ]
    for places in _split(arrays["images"], arrays["prompt_images"]):
        yield [table[place] for place in places.tolist()]


def _pixels(image: ImagePart) -> NDArray[np.uint8]:
    return np.frombuffer(image.pixels, np.uint8)


def _joined(rows: Sequence[Any], dtype: type[np.generic]) -> NDArray[Any]:
    sizes = [len(row) for row in rows]
    joined = np.empty(sum(sizes), dtype=dtype)
    start = 0
    for row, size in zip(rows, sizes, strict=True):
        joined[start : start + size] = row
        start += size
    return joined


def _split(values: NDArray[Any], sizes: NDArray[Any]) -> Iterator[NDArray[Any]]:
    """Consecutive pieces of ``values`` of the given sizes."""
    start = 0
    for size in sizes.tolist():
        yield values[start : start + size]
        start += size
