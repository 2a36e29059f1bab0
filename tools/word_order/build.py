"""Makes ``troupe_tasks/writing/english.xz``: which classes of English words follow which.

``python -m tools.word_order.build TEXT... --out troupe_tasks/writing/english.xz``

Words are put into classes by their neighbours (a singular value decomposition of what stands left
and right of each, then k-means), and each triple of classes gets what it gains over chance: log2 of
P(class | the two before) / P(class), smoothed after Witten and Bell. Same texts, same file. The
shipped one was made from 2.5 million words that are in the public domain: GSA/digitalgov.gov
(``content``, CC0), the addresses of ``state_union`` in NLTK's data, two histories by NASA and
15 books of Project Gutenberg; docs/decisions/0004-libraries.md names them.
"""

import argparse
import lzma
from collections import Counter
from pathlib import Path

import numpy as np
import numpy.typing as npt

from troupe_tasks.writing.word_order import STEPS_A_BIT, token_class_names, word_tokens

NUM_CLASSES = 128
NUM_WORDS = 12_000
NUM_OWN = 60
"""The most frequent words are classes of their own."""
NUM_CONTEXTS = 600
NUM_DIMENSIONS = 50
ROUNDS = 40
MIN_TOKENS = 6

Ids = npt.NDArray[np.int64]


def main() -> None:
    """Read the texts, learn the classes, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("texts", type=Path, nargs="+")
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    names, ids = _read(arguments.texts)
    classes = _classes(len(names), ids)
    lines = [
        " ".join(name for name, one in zip(names, classes, strict=True) if one == number)
        for number in range(NUM_CLASSES)
    ]
    table = _gains(classes[ids])
    data = "\n".join(lines).encode() + b"\n\n" + table.astype(np.uint8).tobytes()
    arguments.out.write_bytes(lzma.compress(data, preset=9 | lzma.PRESET_EXTREME))
    print(f"{len(ids)} tokens, {len(names)} words, {arguments.out.stat().st_size} bytes")


def _read(paths: list[Path]) -> tuple[list[str], Ids]:
    """The words of the table, and the texts as their numbers."""
    paragraphs = [
        tokens
        for path in sorted(paths)
        for paragraph in path.read_text(errors="ignore").split("\n\n")
        if len(tokens := word_tokens(paragraph)) > MIN_TOKENS
    ]
    counts = Counter(token for tokens in paragraphs for token in tokens)
    ranked = sorted(counts, key=lambda word: (-counts[word], word))[:NUM_WORDS]
    numbers = {word: number for number, word in enumerate(ranked)}
    for tokens in paragraphs:
        for token in tokens:
            if token not in numbers:
                numbers.setdefault(token_class_names(token)[0], len(numbers))
    ids = [
        numbers[token] if token in numbers else numbers[token_class_names(token)[0]]
        for tokens in paragraphs
        for token in tokens
    ]
    return list(numbers), np.array(ids, dtype=np.int64)


def _classes(num_words: int, ids: Ids) -> Ids:
    """The class of each word: the most frequent their own, the others by their neighbours."""
    left, right = np.zeros((2, num_words, NUM_CONTEXTS), dtype=np.float32)
    before, after = ids[:-1], ids[1:]
    known = before < NUM_CONTEXTS
    np.add.at(left, (after[known], before[known]), 1)
    known = after < NUM_CONTEXTS
    np.add.at(right, (before[known], after[known]), 1)
    shares = [m / np.maximum(m.sum(1, keepdims=True), 1) for m in (left, right)]
    rows = np.sqrt(np.hstack(shares))
    basis, sizes, _ = np.linalg.svd(rows - rows.mean(0), full_matrices=False)
    points = (basis[:, :NUM_DIMENSIONS] * sizes[:NUM_DIMENSIONS])[NUM_OWN:]
    weights = np.sqrt(np.bincount(ids, minlength=num_words)[NUM_OWN:] + 1.0)
    return np.concatenate(
        [np.arange(NUM_OWN), NUM_OWN + _k_means(points, weights, NUM_CLASSES - NUM_OWN)]
    )


def _k_means(points: npt.NDArray[np.float32], weights: npt.NDArray[np.float64], num: int) -> Ids:
    rng = np.random.default_rng(0)
    centres = points[rng.choice(len(points), num, replace=False, p=weights / weights.sum())]
    nearest = np.zeros(len(points), dtype=np.int64)
    for _ in range(ROUNDS):
        nearest = (-2 * points @ centres.T + (centres**2).sum(1)).argmin(1)
        for one in range(num):
            mine = nearest == one
            if mine.any():
                centres[one] = np.average(points[mine], axis=0, weights=weights[mine])
    return nearest


def _gains(classes: Ids) -> npt.NDArray[np.float64]:
    """What each triple gains over chance, in steps of a part of a bit, 128 meaning none."""
    num = NUM_CLASSES
    single = np.bincount(classes, minlength=num) + 1.0
    chance = single / single.sum()
    pairs, triples = np.zeros((num, num)), np.zeros((num, num, num))
    np.add.at(pairs, (classes[:-1], classes[1:]), 1)
    np.add.at(triples, (classes[:-2], classes[1:-1], classes[2:]), 1)
    likely = _witten_bell(triples, _witten_bell(pairs, chance))
    return np.clip(np.round(STEPS_A_BIT * np.log2(likely / chance)) + 128, 0, 255)


def _witten_bell(
    counts: npt.NDArray[np.float64], lower: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    """``counts`` as probabilities, filled up from the model with one word less before."""
    totals, kinds = counts.sum(-1, keepdims=True), (counts > 0).sum(-1, keepdims=True)
    seen = (counts + kinds * lower) / np.maximum(totals + kinds, 1)
    return np.where(totals > 0, seen, lower)


if __name__ == "__main__":
    main()
