"""The cross-entropy of demonstrations against plain arithmetic: value and gradient."""

import math
import random

import pytest
import torch

from troupe.algorithms.losses.imitation import imitation_loss


def test_loss_when_worked_by_hand_then_is_the_weighted_mean() -> None:
    """Probabilities 1/2 and 1/8 at weight 0.5: 0.5 * (log 2 + 3 log 2) / 2 = log 2."""
    logprobs = torch.log(torch.tensor([0.5, 0.125], dtype=torch.float64))
    assert float(imitation_loss(logprobs, 0.5, 2)) == pytest.approx(math.log(2), abs=1e-12)


def test_loss_when_split_into_micro_batches_then_the_parts_add_up() -> None:
    logprobs = torch.tensor([-0.5, -1.0, -4.0], dtype=torch.float64)
    parts = imitation_loss(logprobs[:1], 2.0, 3) + imitation_loss(logprobs[1:], 2.0, 3)
    assert float(parts) == pytest.approx(2.0 * 5.5 / 3, abs=1e-12)


def test_gradient_when_compared_with_plain_arithmetic_then_is_within_1e_9() -> None:
    """d/dlogits of w * mean(-log softmax) is w / N * (softmax - one at the target), in floats."""
    rng, weight, size, vocabulary = random.Random(4), 0.7, 6, 11
    rows = [[rng.gauss(0, 2) for _ in range(vocabulary)] for _ in range(size)]
    targets = [rng.randrange(vocabulary) for _ in range(size)]
    logits = torch.tensor(rows, dtype=torch.float64, requires_grad=True)
    table = torch.log_softmax(logits, -1)
    loss = imitation_loss(table[torch.arange(size), torch.tensor(targets)], weight, size)
    loss.backward()  # type: ignore[no-untyped-call]
    assert logits.grad is not None
    wanted_loss = 0.0
    for row, target, found in zip(rows, targets, logits.grad.tolist(), strict=True):
        largest = max(row)
        total = math.fsum(math.exp(value - largest) for value in row)
        wanted_loss += weight / size * (largest + math.log(total) - row[target])
        for token, value in enumerate(row):
            share = math.exp(value - largest) / total
            wanted = weight / size * (share - (1.0 if token == target else 0.0))
            assert found[token] == pytest.approx(wanted, abs=1e-9)
    assert float(loss.detach()) == pytest.approx(wanted_loss, abs=1e-9)
