"""What passes when the machine has again what it lacks, by the errors that are really raised."""

import errno
import threading
from collections.abc import Callable

import pytest
import torch

from troupe.shortage import is_shortage


def start_a_thread() -> None:
    before = threading.stack_size(1 << 46)
    try:
        threading.Thread(target=print).start()
    finally:
        threading.stack_size(before)


def allocate() -> None:
    torch.empty(1 << 50)


def take_memory() -> None:
    bytearray(1 << 60)


@pytest.mark.parametrize("demand", [start_a_thread, allocate, take_memory])
def test_shortage_when_there_is_no_memory_then_is_one(demand: Callable[[], None]) -> None:
    with pytest.raises((RuntimeError, MemoryError)) as raised:
        demand()
    assert is_shortage(raised.value)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (OSError(errno.EMFILE, "Too many open files"), True),
        (OSError(errno.ENOENT, "No such file"), False),
        (RuntimeError("mat1 and mat2 shapes cannot be multiplied"), False),
        (ValueError("can't start new thread"), False),
    ],
)
def test_shortage_when_another_error_then_only_if_waiting_helps(
    error: Exception, expected: bool
) -> None:
    assert is_shortage(error) == expected
