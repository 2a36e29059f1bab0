"""Sums of windows' gradients: the same bits in any order, and few that wait."""

import random
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import nn

from troupe_trainer.learn.gradient_sums import GradientSum, InTurn, Paired
from troupe_trainer.learn.outcome import Minibatch

SIZE = 64
BYTES = 4 * SIZE
WINDOWS = 32
BATCHES = 3


def _sum(how: type[GradientSum], most_held: int) -> tuple[GradientSum, nn.Parameter]:
    parameter = nn.Parameter(torch.zeros(SIZE))
    return how([parameter], most_held * BYTES), parameter


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


@pytest.mark.parametrize("how", [InTurn, Paired])
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


def test_sum_when_only_one_window_has_groups_then_is_that_ones() -> None:
    total, parameter = _sum(Paired, 0)
    for window in range(4):
        _add(total, parameter, window, BATCHES if window == 2 else 0)
    total.finish()
    alone, other = _sum(Paired, 0)
    _add(alone, other, 2)
    alone.finish()
    assert parameter.grad is not None
    assert other.grad is not None
    assert torch.equal(parameter.grad, other.grad)


def _refused(how: type[GradientSum], most_held: int, ended: Sequence[int]) -> int:
    """How many windows could not be added before the last one had ended."""
    total, parameter = _sum(how, most_held)
    added: set[int] = set()
    for number in range(1, len(ended)):
        while True:
            turn = next(window for window in range(WINDOWS) if window not in added)
            window = total.next_of([w for w in ended[:number] if w not in added], turn)
            if window is None:
                break
            _add(total, parameter, window, 1)
            added.add(window)
    return len(ended) - 1 - len(added)


def test_room_when_the_first_window_is_the_last_to_end_then_pairs_need_little_of_it() -> None:
    ended = [*range(1, WINDOWS), 0]
    assert _refused(InTurn, 12, ended) == WINDOWS - 1 - 12
    assert _refused(Paired, 8, ended) == 0


def test_room_when_windows_end_at_random_then_pairs_need_12_sums_of_it() -> None:
    orders = [random.Random(seed).sample(range(WINDOWS), WINDOWS) for seed in range(20)]
    assert sum(_refused(InTurn, 12, ended) for ended in orders) > 5 * len(orders)
    assert sum(_refused(Paired, 12, ended) for ended in orders) == 0


@pytest.mark.parametrize("how", [InTurn, Paired])
def test_room_when_there_is_none_then_the_window_whose_turn_it_is_is_still_added(
    how: type[GradientSum],
) -> None:
    total, parameter = _sum(how, 0)
    assert total.next_of([1, 2, 3], 0) is None
    assert total.next_of([], 0) is None
    for window in range(WINDOWS):
        assert total.next_of([window, *range(window + 2, WINDOWS)], window) == window
        _add(total, parameter, window)
