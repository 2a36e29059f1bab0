"""Intervals and pass@k against numbers worked out by hand or by enumeration."""

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from troupe.evaluation.estimators import (
    average,
    cluster_variance,
    paired_difference,
    pass_at_k,
    proportion,
    students_t,
    wilson,
)

Z = 1.959963984540054


def test_wilson_when_half_of_ten_then_the_textbook_interval() -> None:
    low, high = wilson(0.5, 10)
    assert (low, high) == (pytest.approx(0.2366, abs=5e-5), pytest.approx(0.7634, abs=5e-5))


def test_wilson_when_all_or_none_succeed_then_does_not_collapse() -> None:
    share = Z * Z / 200
    assert wilson(1.0, 200) == (pytest.approx(1 / (1 + share)), 1.0)
    assert wilson(0.0, 200) == (0.0, pytest.approx(share / (1 + share)))


@given(st.integers(1, 500), st.data())
def test_wilson_when_any_count_then_holds_the_mean_inside_the_unit_interval(
    num: int, data: st.DataObject
) -> None:
    mean = data.draw(st.integers(0, num)) / num
    low, high = wilson(mean, num)
    assert 0.0 <= low <= mean <= high <= 1.0


def test_proportion_when_one_sample_a_task_then_is_plain_wilson() -> None:
    found = proportion([[1.0], [0.0], [1.0], [1.0]])
    assert found is not None
    assert (found.mean, found.method) == (0.75, "wilson")
    assert (found.low, found.high) == wilson(0.75, 4)


def test_proportion_when_samples_of_a_task_agree_then_counts_tasks_not_samples() -> None:
    """Five tasks solved always and five never: 100 samples tell what 10 do."""
    found = proportion([[1.0] * 10] * 5 + [[0.0] * 10] * 5)
    assert found is not None
    # Var = 10/9 * 10 * 25 / 100^2 = 1/36, so 0.25 / (1/36) = 9 < 10 tasks.
    assert (found.low, found.high) == wilson(0.5, 10)
    assert (found.num_tasks, found.num_samples) == (10, 100)


def test_proportion_when_tasks_are_alike_then_counts_samples() -> None:
    """Every task solved in exactly half of its samples: no variance between tasks."""
    found = proportion([[1.0, 0.0]] * 8)
    assert found is not None
    assert found.mean == 0.5
    # The variance is 0, so nothing says that samples are worth more than tasks.
    assert (found.low, found.high) == wilson(0.5, 8)


def test_proportion_when_clusters_are_mixed_then_uses_the_effective_number() -> None:
    clusters = [[1.0, 1.0], [1.0, 0.0], [0.0, 0.0], [1.0, 0.0]]
    # mean 1/2; sums less mean * 2: 1, 0, -1, 0; Var = 4/3 * 2 / 64 = 1/24; 0.25 * 24 = 6.
    assert cluster_variance(clusters) == pytest.approx(1 / 24)
    found = proportion(clusters)
    assert found is not None
    assert (found.low, found.high) == pytest.approx(wilson(0.5, 6))


def test_proportion_and_average_when_nothing_was_played_then_are_none() -> None:
    assert proportion([]) is None
    assert proportion([[], []]) is None
    assert average([[]]) is None


@pytest.mark.parametrize("clusters", [[[1.0, 3.0]], [[2.0]] * 3, [[1.0, 3.0], [3.0, 1.0]]])
def test_average_when_tasks_show_no_spread_then_has_no_interval(
    clusters: list[list[float]],
) -> None:
    found = average(clusters)
    assert found is not None
    assert (found.mean, found.low, found.high) == (2.0, None, None)


def test_average_when_one_sample_a_task_then_is_the_standard_error_of_the_mean() -> None:
    values = [1.0, 2.0, 4.0, 5.0]
    found = average([[v] for v in values])
    assert found is not None
    # Sample variance 10/3, of the mean 10/12; 3.1824 is Student's t for 3 degrees.
    assert found.high == pytest.approx(3.0 + 3.1824 * math.sqrt(10 / 12), rel=2e-3)
    assert found.method == "Student's t, clustered by task"


def test_average_when_tasks_are_few_then_the_interval_is_students() -> None:
    # Variances of the mean 1/4 and 1/3; Student's t is 12.7062 for 1 degree and 4.30265 for 2.
    of_two, of_three = average([[0.0], [1.0]]), average([[0.0], [1.0], [2.0]])
    assert of_two is not None
    assert of_three is not None
    assert of_two.low == pytest.approx(0.5 - 12.7062 * 0.5, abs=1e-4)
    assert of_three.high == pytest.approx(1.0 + 4.30265 * math.sqrt(1 / 3), abs=1e-4)


@pytest.mark.parametrize(
    ("degrees", "expected"), [(1, 12.7062), (2, 4.3027), (4, 2.7764), (9, 2.2622), (10**6, Z)]
)
def test_students_t_when_looked_up_then_is_the_tables(degrees: int, expected: float) -> None:
    assert students_t(degrees) == pytest.approx(expected, rel=4e-4)


@pytest.mark.parametrize(
    ("n", "c", "k", "value"),
    [
        (5, 0, 3, 0.0),
        (5, 3, 3, 1.0),
        (4, 1, 2, 0.5),  # 1 - C(3,2)/C(4,2)
        (10, 3, 2, 1 - 21 / 45),
        (10, 10, 1, 1.0),
        (200, 2, 100, 1 - (100 * 99) / (200 * 199)),
    ],
)
def test_pass_at_k_when_worked_by_hand_then_agrees(n: int, c: int, k: int, value: float) -> None:
    assert pass_at_k(n, c, k) == pytest.approx(value)


@given(st.integers(1, 9), st.data())
def test_pass_at_k_when_every_subset_is_tried_then_is_the_share_with_a_success(
    n: int, data: st.DataObject
) -> None:
    c, k = data.draw(st.integers(0, n)), data.draw(st.integers(1, n))
    subsets = list(itertools.combinations(range(n), k))
    share = sum(any(i < c for i in subset) for subset in subsets) / len(subsets)
    assert pass_at_k(n, c, k) == pytest.approx(share)


@pytest.mark.parametrize(("n", "c", "k"), [(3, 1, 4), (3, 4, 1), (3, 1, 0)])
def test_pass_at_k_when_impossible_then_refuses(n: int, c: int, k: int) -> None:
    with pytest.raises(ValueError, match="pass@"):
        pass_at_k(n, c, k)


def test_paired_difference_when_worked_by_hand_then_is_bonett_and_price() -> None:
    """100 pairs, 10 won by the second and 2 by the first."""
    first = [[0.0]] * 10 + [[1.0]] * 2 + [[1.0]] * 88
    second = [[1.0]] * 10 + [[0.0]] * 2 + [[1.0]] * 88
    found = paired_difference(first, second)
    assert found is not None
    p12, p21 = 11 / 102, 3 / 102
    spread = Z * math.sqrt((p12 + p21 - (p12 - p21) ** 2) / 102)
    assert found.mean == pytest.approx(0.08)
    assert found.low == pytest.approx(p12 - p21 - spread)
    assert found.high == pytest.approx(p12 - p21 + spread)


def test_paired_difference_when_no_task_tells_them_apart_then_does_not_collapse() -> None:
    found = paired_difference([[1.0], [0.0]], [[1.0], [0.0]])
    assert found is not None
    assert found.low is not None
    assert found.high is not None
    assert found.low < found.mean == 0.0 < found.high
    assert paired_difference([[]], [[1.0]]) is None
