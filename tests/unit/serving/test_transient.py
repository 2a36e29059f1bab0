"""What passes when the machine has again what it lacks, by the errors that are really raised."""

import errno
import subprocess
import sys
import threading
from collections.abc import Callable

import pytest
import torch
from google.protobuf.message import DecodeError

from troupe.api.records.v1.records_pb2 import Group
from troupe.runtime.transient import is_transient


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
    assert is_transient(raised.value)


READ_AND_WRITE = """
import resource
from troupe.api.records.v1.records_pb2 import Group
from troupe.runtime.transient import is_transient

group = Group(group_id="x" * (64 << 20))
data = group.SerializeToString()
status = open("/proc/self/status").read().split()
used = int(status[status.index("VmSize:") + 1]) << 10
resource.setrlimit(resource.RLIMIT_AS, (used + (8 << 20), resource.RLIM_INFINITY))
for demand in (lambda: Group.FromString(data), group.SerializeToString):
    try:
        demand()
    except Exception as error:
        print(is_transient(error), end=" ")
"""


def test_shortage_when_protobuf_has_no_memory_then_is_one() -> None:
    argv = [sys.executable, "-c", READ_AND_WRITE]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout.split() == ["True", "True"], done.stderr


def test_shortage_when_bytes_are_no_message_then_is_none() -> None:
    with pytest.raises(DecodeError) as raised:
        Group.FromString(b"\x07")
    assert not is_transient(raised.value)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (OSError(errno.EMFILE, "Too many open files"), True),
        (BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable"), True),
        (OSError(errno.ENOENT, "No such file"), False),
        (RuntimeError("std::bad_alloc"), True),
        (RuntimeError("mat1 and mat2 shapes cannot be multiplied"), False),
        (ValueError("can't start new thread"), False),
    ],
)
def test_shortage_when_another_error_then_only_if_waiting_helps(
    error: Exception, expected: bool
) -> None:
    assert is_transient(error) == expected
