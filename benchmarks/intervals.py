"""Intervals and tests of comparisons over few seeds and many tasks."""

import math
from collections.abc import Sequence
from itertools import product

import numpy as np

from troupe.evaluation.estimators import expanded_students_t

NUM_RESAMPLES = 2000


def interval(
    first: np.ndarray, second: np.ndarray | None = None, *, maps: Sequence[int]
) -> list[float]:
    """Mean, or mean difference, with its 95 % interval, in per cent.

    Student's t with two sources of chance: the seeds' variance, and a bootstrap's over maps, each
    with all its tasks (``maps``: the map of each task), for tasks of one map may stand or fall
    together. Two arms are paired: they have the same seeds in the same order. What changes with
    seed and map at once is in both, so the interval is rather too wide. It is never narrower than
    that of one source alone; a mean's ends at 0 and 100.

    Source: degrees of freedom of a sum of variances, Satterthwaite, Biometrics Bulletin 2 (1946).
    """
    values = 100.0 * (first - second if second is not None else first)
    mean = float(values.mean())
    num_seeds, num_tasks = values.shape
    of_map = np.zeros((num_tasks, max(maps) + 1))
    of_map[np.arange(num_tasks), list(maps)] = 1.0
    sums, sizes = values.mean(axis=0) @ of_map, of_map.sum(axis=0)
    num_maps = len(sizes)
    drawn = np.random.default_rng(0).integers(num_maps, size=(NUM_RESAMPLES, num_maps))
    means = sums[drawn].sum(axis=1) / sizes[drawn].sum(axis=1)
    parts: list[tuple[float, int]] = []  # variance, degrees of freedom
    if num_seeds > 1:
        parts.append((float(np.var(values.mean(axis=1), ddof=1)) / num_seeds, num_seeds - 1))
    if num_maps > 1:
        parts.append((float(np.var(means)) * num_maps / (num_maps - 1), num_maps - 1))
    variance = sum(part for part, _ in parts)
    if variance == 0.0:
        return [round(mean, 1)] * 3
    degrees = variance**2 / sum(part**2 / number for part, number in parts)
    alone = [expanded_students_t(number) * math.sqrt(part) for part, number in parts]
    width = max(expanded_students_t(degrees) * math.sqrt(variance), *alone)
    low, high = mean - width, mean + width
    if second is None:
        low, high = max(low, 0.0), min(high, 100.0)
    return [round(x, 1) for x in (mean, low, high)]


def holm(ps: Sequence[float]) -> list[float]:
    """Each p corrected for all of them. Example: 0.01 and 0.04 give 0.02 and 0.04.

    Source: Holm, Scandinavian Journal of Statistics 6 (1979).
    """
    corrected, largest = [0.0] * len(ps), 0.0
    for rank, place in enumerate(sorted(range(len(ps)), key=lambda i: ps[i])):
        largest = max(largest, min(1.0, (len(ps) - rank) * ps[place]))
        corrected[place] = largest
    return corrected


def sign_flip(differences: Sequence[float]) -> float:
    """Two-sided p that a mean so far from 0 comes of equal arms: exact, over all signs of seeds.

    Source: Fisher, The Design of Experiments (1935), section 21.
    """
    values = np.asarray(differences, dtype=float)
    signs = np.array(list(product((1.0, -1.0), repeat=len(values))))
    return float(np.mean(np.abs(signs @ values) >= abs(values.sum()) - 1e-12))
