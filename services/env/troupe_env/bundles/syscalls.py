"""System calls that a bundle's process is refused: networks, other processes, programs, the kernel,
memory that no limit counts.

A list of what is refused, unlike the sandbox's list of what is allowed: the process serves gRPC and
imports packages, and its author has a key. Standard library alone.
"""

import errno
import os

from troupe_env.sandbox.inside.bpf import (
    AF_UNIX,
    ALLOW,
    AND,
    ANY_BIT,
    ARGS,
    EQUAL,
    LOAD,
    RETURN,
    answered,
    begun,
    numbers,
    one_of,
    only_if,
    op,
)

# name:number, on x86-64 and then arm64 where it has the call.
_REFUSED = """
    connect:42:203 execve:59:221 execveat:322:281 ptrace:101:117 process_vm_readv:310:270
    process_vm_writev:311:271 mount:165:40 umount2:166:39 unshare:272:97 setns:308:268 bpf:321:280
    chroot:161:51 keyctl:250:219 add_key:248:217 request_key:249:218 userfaultfd:323:282
    perf_event_open:298:241 pidfd_open:434:434 pidfd_send_signal:424:424 pidfd_getfd:438:438
    kcmp:312:272 open_by_handle_at:304:265 syslog:103:116 shmget:29:194 shmat:30:196 msgget:68:186
    semget:64:190 mq_open:240:180 io_uring_setup:425:425 sched_setscheduler:144:119
    sched_setattr:314:274 sched_setparam:142:118 ioprio_set:251:30 setpriority:141:140 sync:162:81
    fork:57 vfork:58 memfd_secret:447:447
"""
_NAMING = "bind:49:200 mknodat:259:33 mknod:133"
_SOCKET, _CLONE, _CLONE3 = (41, 198), (56, 220), (435, 435)
_OF_ITSELF = "kill:62:129 tgkill:234:131"
_OF_ITSELF_OR_0 = "prlimit64:302:261 sched_setaffinity:203:122"
_TKILL = (200, 130)
_MMAP, _MEMFD_CREATE, _PRCTL = (9, 222), (319, 279), (157, 167)
_PR_SET_PDEATHSIG = 1
_SHARED_ANONYMOUS = 0x21  # MAP_SHARED | MAP_ANONYMOUS
_SOCK_STREAM, _SOCK_KIND = 1, 0xF
_CLONE_THREAD = 0x00010000


def assembled(machine: str = "") -> bytes:
    """The filter for this machine and this process; raises OSError where there is none."""
    ops, column = begun(machine)
    for number in numbers(_REFUSED, column):
        ops += answered(number, errno.EPERM)
    ops += answered(_TKILL[column], errno.EPERM)
    ops += answered(_CLONE3[column], errno.ENOSYS)  # the C library then calls clone
    ops += answered(_MEMFD_CREATE[column], errno.ENOSYS)  # libraries then take private memory
    ops += only_if(_CLONE[column], [op(LOAD, ARGS), op(ANY_BIT, _CLONE_THREAD, 1, 0)])
    shared = [
        op(LOAD, ARGS + 8 * 3),
        op(AND, _SHARED_ANONYMOUS),
        op(EQUAL, _SHARED_ANONYMOUS, 0, 1),
    ]
    ops += only_if(_MMAP[column], shared)
    ops += only_if(_PRCTL[column], [op(LOAD, ARGS), op(EQUAL, _PR_SET_PDEATHSIG, 0, 1)])
    stream = [
        op(LOAD, ARGS + 8),
        op(AND, _SOCK_KIND),
        op(EQUAL, _SOCK_STREAM, 0, 2),
        op(LOAD, ARGS),
        op(EQUAL, AF_UNIX, 1, 0),
    ]
    ops += only_if(_SOCKET[column], stream)
    for number in numbers(_OF_ITSELF, column):
        ops += one_of(number, {0: (os.getpid(),)})
    for number in numbers(_OF_ITSELF_OR_0, column):
        ops += one_of(number, {0: (0, os.getpid())})
    return b"".join([*ops, op(RETURN, ALLOW)])


def nameless(machine: str = "") -> bytes:
    """A filter besides, for a process that has the socket on which it listens."""
    ops, column = begun(machine)
    for number in numbers(_NAMING, column):
        ops += answered(number, errno.EPERM)
    return b"".join([*ops, op(RETURN, ALLOW)])
