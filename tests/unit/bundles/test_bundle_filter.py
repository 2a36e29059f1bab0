"""The filter of a bundle's process, on both machines; the calls of this one are in integration."""

import errno
import fcntl
import os
import socket

import pytest
from filter_verdict import ALLOW, ARM, ERRNO, X86, verdict

from troupe_env.bundles import syscalls

OWN, OTHER = os.getpid(), os.getpid() + 1
PROCESSES = {
    "kill": (62, 129),
    "tgkill": (234, 131),
    "prlimit64": (302, 261),
    "sched_setaffinity": (203, 122),
    "sched_setattr": (314, 274),
    "sched_setparam": (142, 118),
    "ioprio_set": (251, 30),
    "rt_sigqueueinfo": (129, 138),
    "rt_tgsigqueueinfo": (297, 240),
}
"""Calls that reach a process by its number, on x86-64 and on arm64."""


def answers(numbers: tuple[int, int], *arguments: int) -> list[int]:
    """Error numbers on both machines; 0 for a call that is allowed."""
    found = [
        verdict(syscalls.assembled("x86_64"), X86, numbers[0], *arguments),
        verdict(syscalls.assembled("aarch64"), ARM, numbers[1], *arguments),
    ]
    return [0 if answer == ALLOW else answer ^ ERRNO for answer in found]


@pytest.mark.parametrize("numbers", PROCESSES.values(), ids=list(PROCESSES))
def test_call_when_it_is_on_another_process_then_is_refused(numbers: tuple[int, int]) -> None:
    assert answers(numbers, OTHER) == [errno.EPERM, errno.EPERM]


@pytest.mark.parametrize("name", ["prlimit64", "sched_setaffinity"])
def test_call_when_it_is_on_the_process_itself_then_is_allowed(name: str) -> None:
    assert answers(PROCESSES[name], 0) == [0, 0]
    assert answers(PROCESSES[name], OWN) == [0, 0]


ATTRIBUTES = {
    "fchmod": (91, 52),
    "fchmodat": (268, 53),
    "fchmodat2": (452, 452),
    "fchown": (93, 55),
    "fchownat": (260, 54),
    "utimensat": (280, 88),
    "setxattr": (188, 5),
    "fsetxattr": (190, 7),
    "setxattrat": (463, 463),
    "removexattr": (197, 14),
    "fremovexattr": (199, 16),
    "file_setattr": (469, 469),
}
OPENAT, IOCTL, FCNTL, TRUNCATE = (257, 56), (16, 29), (72, 25), (76, 45)
FS_IOC_SETFLAGS, FIONBIO = 0x40086602, 0x5421


@pytest.mark.parametrize("numbers", ATTRIBUTES.values(), ids=list(ATTRIBUTES))
def test_attributes_of_a_file_when_set_then_is_refused(numbers: tuple[int, int]) -> None:
    assert answers(numbers) == [errno.EPERM, errno.EPERM]


def test_file_when_opened_for_no_access_then_is_refused() -> None:
    for access in (os.O_RDONLY, os.O_WRONLY, os.O_RDWR):
        assert answers(OPENAT, 0, 0, access | os.O_CLOEXEC) == [0, 0]
    assert answers(OPENAT, 0, 0, 3 | os.O_CLOEXEC) == [errno.EPERM, errno.EPERM]
    assert verdict(syscalls.assembled("x86_64"), X86, 2, 0, 3) == ERRNO | errno.EPERM  # open
    assert answers((437, 437)) == [errno.ENOSYS, errno.ENOSYS]  # openat2


def test_ioctl_when_it_would_change_a_file_then_is_refused() -> None:
    assert answers(IOCTL, 5, FIONBIO) == [0, 0]
    assert answers(IOCTL, 5, FS_IOC_SETFLAGS) == [errno.EPERM, errno.EPERM]


def test_file_when_it_would_be_emptied_without_a_right_to_write_then_is_refused() -> None:
    refused = [errno.EPERM, errno.EPERM]
    assert answers(TRUNCATE) == refused
    for access in (os.O_RDONLY, 3):
        assert answers(OPENAT, 0, 0, access | os.O_TRUNC) == refused
    for access in (os.O_WRONLY, os.O_RDWR):  # Landlock allows it of the null device alone
        assert answers(OPENAT, 0, 0, access | os.O_TRUNC | os.O_CREAT) == [0, 0]


def test_descriptor_when_it_would_send_signals_or_hold_a_file_then_is_refused() -> None:
    for command in (fcntl.F_SETOWN, fcntl.F_SETSIG, 15, fcntl.F_SETLEASE):  # 15: F_SETOWN_EX
        assert answers(FCNTL, 0, command) == [errno.EPERM, errno.EPERM]
    for command in (fcntl.F_GETFL, fcntl.F_SETFL, fcntl.F_SETFD, fcntl.F_DUPFD_CLOEXEC):
        assert answers(FCNTL, 0, command) == [0, 0]
    for command in (0x8901, 0x8902):  # FIOSETOWN, SIOCSPGRP
        assert answers(IOCTL, 0, command) == [errno.EPERM, errno.EPERM]


SHARED = {
    "inotify_add_watch": (254, 27),
    "fanotify_init": (300, 262),
    "syncfs": (306, 267),
    "mq_unlink": (241, 181),
    "shmctl": (31, 195),
    "msgsnd": (69, 189),
    "msgrcv": (70, 188),
    "msgctl": (71, 187),
    "semop": (65, 193),
    "semtimedop": (220, 192),
    "semctl": (66, 191),
}


@pytest.mark.parametrize("numbers", SHARED.values(), ids=list(SHARED))
def test_what_processes_share_when_used_then_is_refused(numbers: tuple[int, int]) -> None:
    assert answers(numbers) == [errno.EPERM, errno.EPERM]


def test_pair_of_sockets_when_it_could_send_to_a_name_then_is_refused() -> None:
    pair = (53, 199)
    assert answers(pair, socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC) == [0, 0]
    assert answers(pair, socket.AF_UNIX, socket.SOCK_DGRAM) == [errno.EPERM, errno.EPERM]
