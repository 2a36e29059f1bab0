"""Sums of windows' gradients: the same bits in any order, and nothing that waits."""

import math
import random
from collections import defaultdict
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from troupe_trainer.learn.gradient_sums import (
    CHUNK,
    COARSE,
    FINE,
    Exact,
    GradientSum,
    InTurn,
    WholeSum,
)
from troupe_trainer.learn.outcome import Minibatch

SIZE = 64
BYTES = 4 * SIZE
WINDOWS = 32
BATCHES = 3


def _sum(how: type[GradientSum], most_held: int) -> tuple[GradientSum, nn.Parameter]:
    parameter = nn.Parameter(torch.zeros(SIZE))
    if how is InTurn:
        return InTurn([parameter], most_held * BYTES), parameter
    return Exact([parameter]), parameter


def _add(total: GradientSum, parameter: nn.Parameter, window: int, batches: int = BATCHES) -> None:
    """Micro-batches whose gradients are random, as autograd accumulates them."""

    def compute(blocks: Any) -> Minibatch:
        gradient = torch.randn(SIZE, generator=torch.Generator().manual_seed(blocks))
        parameter.grad = gradient if parameter.grad is None else parameter.grad.add_(gradient)
        return Minibatch(sums=defaultdict(float))

    numbers: Any = range(window * BATCHES, window * BATCHES + batches)
    assert len(total.add(window, numbers, compute)) == batches


def _added(how: type[GradientSum], order: Sequence[int], windows: int = WINDOWS) -> torch.Tensor:
    total, parameter = _sum(how, WINDOWS * BATCHES)
    for window in order:
        _add(total, parameter, window, 0 if window == 5 else BATCHES)
    assert sorted(order) == list(range(windows))
    total.finish()
    assert parameter.grad is not None
    return parameter.grad


@pytest.mark.parametrize("how", [InTurn, Exact])
@pytest.mark.parametrize("windows", [6, 7, 21, WINDOWS])
def test_sum_when_windows_come_in_any_order_then_has_the_same_bits(
    how: type[GradientSum], windows: int
) -> None:
    in_order = _added(how, range(windows), windows)
    for seed in range(5):
        order = random.Random(seed).sample(range(windows), windows)
        assert torch.equal(_added(how, order, windows), in_order)
    exact = sum(
        torch.randn(SIZE, generator=torch.Generator().manual_seed(number)).double()
        for number in range(windows * BATCHES)
        if number // BATCHES != 5
    )
    assert torch.allclose(in_order.double(), torch.as_tensor(exact), atol=1e-4)


def test_sum_when_only_one_window_has_groups_then_is_that_ones_to_the_grid() -> None:
    total, parameter = _sum(Exact, 0)
    for window in range(4):
        _add(total, parameter, window, 1 if window == 2 else 0)
    total.finish()
    alone = torch.randn(SIZE, generator=torch.Generator().manual_seed(2 * BATCHES))
    assert parameter.grad is not None
    assert torch.equal(parameter.grad.double(), (alone.double() / FINE).round() * FINE)


NUMBERS = st.floats(width=32, min_value=-(2.0**100), max_value=2.0**100)


@given(st.lists(st.lists(NUMBERS, min_size=3, max_size=3), min_size=1, max_size=9), st.data())
def test_sum_when_numbers_have_any_size_then_no_order_changes_a_bit(
    rows: list[list[float]], data: st.DataObject
) -> None:
    order = data.draw(st.permutations(range(len(rows))))
    sums = [WholeSum(), WholeSum()]
    for total, numbers in zip(sums, (range(len(rows)), order), strict=True):
        for number in numbers:
            total.add(torch.tensor(rows[number]))
    one, other = (total.take() for total in sums)
    is_exact = torch.tensor(rows).abs().sum(0) < COARSE * 2.0**53
    assert torch.equal(one[is_exact], other[is_exact])
    columns = [list(map(Fraction, column)) for column in zip(*rows, strict=True)]
    for value, column in zip(one.tolist(), columns, strict=True):
        true, size = sum(column), sum(map(abs, column))
        assert abs(Fraction(value) - true) <= Fraction(FINE) * len(rows) + size * Fraction(2) ** -23


def test_sum_when_a_number_is_not_finite_then_is_not_either() -> None:
    for bad in (math.nan, math.inf, -math.inf):
        total = WholeSum()
        for value in (1.0, bad, 2.0):
            total.add(torch.tensor([value, 1.0]))
        values = total.take()
        assert not math.isfinite(values[0])
        assert values[1] == 3.0


def test_sum_when_no_loss_reached_a_parameter_then_it_has_no_gradient() -> None:
    parameters = [nn.Parameter(torch.zeros(2)) for _ in range(3)]
    total = Exact(parameters)

    def compute(blocks: Any) -> Minibatch:
        parameters[blocks].grad = torch.full((2,), 0.5)
        return Minibatch(sums=defaultdict(float))

    numbers: Any = [0], [2], [0]
    for window, reached in enumerate(numbers):
        total.add(window, reached, compute)
    total.finish()
    gradients = [None if p.grad is None else p.grad.tolist() for p in parameters]
    assert gradients == [[1.0, 1.0], None, [0.5, 0.5]]


def test_sum_when_parameters_fill_several_chunks_then_each_gets_its_part() -> None:
    sizes = [CHUNK - 1, 2, CHUNK + 1, 3]
    parameters = [nn.Parameter(torch.zeros(size, 1)) for size in sizes]
    total = Exact(parameters)

    def compute(blocks: Any) -> Minibatch:
        for number, parameter in enumerate(parameters):
            parameter.grad = torch.full_like(parameter, 2.0**number + blocks)
        return Minibatch(sums=defaultdict(float))

    numbers: Any = [3], [5]
    for window, of_window in enumerate(numbers):
        total.add(window, of_window, compute)
    total.finish()
    for number, parameter in enumerate(parameters):
        assert parameter.grad is not None
        assert torch.equal(parameter.grad, torch.full_like(parameter, 2 * 2.0**number + 8))


@pytest.mark.parametrize("how", [InTurn, Exact])
def test_gradients_when_they_are_summed_exactly_then_none_outlives_its_backward_pass(
    how: type[GradientSum],
) -> None:
    torch.manual_seed(0)
    wide = int(CHUNK**0.5) + 1
    model = nn.Sequential(nn.Linear(3, wide), nn.Linear(wide, wide), nn.Linear(wide, 1))
    parameters = list(model.parameters())
    total = Exact(parameters) if how is Exact else InTurn(parameters, 0)
    inputs = torch.randn(4, 3)
    left = list[int]()

    def compute(blocks: Any) -> Minibatch:
        part = model(inputs[blocks])
        part.sum().backward()
        left.append(sum(p.numel() for p in parameters if p.grad is not None))
        return Minibatch(sums=defaultdict(float))

    windows: Any = [[0], [1]], [[2, 3]]
    for window, batches in enumerate(windows):
        total.add(window, batches, compute)
    total.finish()
    assert left == [0 if how is Exact else sum(p.numel() for p in parameters)] * 3
    gradients = [p.grad for p in parameters]
    for parameter in parameters:
        parameter.grad = None
    model(inputs).sum().backward()  # also: no hook is left
    for parameter, gradient in zip(parameters, gradients, strict=True):
        assert parameter.grad is not None
        assert gradient is not None
        assert torch.allclose(parameter.grad, gradient, atol=1e-5)


def test_room_when_it_is_used_up_then_in_turn_waits_and_exactly_does_not() -> None:
    windows = range(1, WINDOWS)
    for how, taken in ((InTurn, 12), (Exact, len(windows))):
        total, parameter = _sum(how, 12)
        added = list[int]()
        while window := total.next_of([w for w in windows if w not in added], 0):
            _add(total, parameter, window, 1)
            added.append(window)
        assert len(added) == taken


def test_room_when_there_is_none_then_the_window_whose_turn_it_is_is_still_added() -> None:
    total, parameter = _sum(InTurn, 0)
    assert total.next_of([1, 2, 3], 0) is None
    assert total.next_of([], 0) is None
    for window in range(WINDOWS):
        assert total.next_of([window, *range(window + 2, WINDOWS)], window) == window
        _add(total, parameter, window)
