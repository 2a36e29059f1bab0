"""System calls that a bundle's process is refused: networks, other processes, programs, the kernel,
memory that no limit counts, and what Landlock leaves open of files.

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
    IOCTLS,
    LOAD,
    RETURN,
    STREAMS,
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
    fork:57 vfork:58 memfd_secret:447:447 rt_sigqueueinfo:129:138 rt_tgsigqueueinfo:297:240
    truncate:76:45 inotify_add_watch:254:27 fanotify_init:300:262 syncfs:306:267 mq_unlink:241:181
    shmctl:31:195 msgsnd:69:189 msgrcv:70:188 msgctl:71:187 semop:65:193 semtimedop:220:192
    semctl:66:191
"""
# Landlock has no right for these: whoever owns a file could call them on any.
_ATTRIBUTES = """
    chmod:90 fchmod:91:52 fchmodat:268:53 fchmodat2:452:452 chown:92 fchown:93:55 fchownat:260:54
    lchown:94 utime:132 utimes:235 futimesat:261 utimensat:280:88 setxattr:188:5 lsetxattr:189:6
    fsetxattr:190:7 setxattrat:463:463 removexattr:197:14 lremovexattr:198:15 fremovexattr:199:16
    removexattrat:466:466 file_setattr:469:469
"""
_NAMING = "bind:49:200 mknodat:259:33 mknod:133"
_OF_ITSELF = "kill:62:129 tgkill:234:131"
_OF_ITSELF_OR_0 = "prlimit64:302:261 sched_setaffinity:203:122"
# Callers then take an older call: clone3, memfd_create (private memory), openat2.
_UNKNOWN = "clone3:435:435 memfd_create:319:279 openat2:437:437"
_SOCKET, _SOCKETPAIR, _CLONE, _TKILL = (41, 198), (53, 199), (56, 220), (200, 130)
_MMAP, _PRCTL, _IOCTL, _FCNTL = (9, 222), (157, 167), (16, 29), (72, 25)
_OPENS = (("open:2", 1), ("openat:257:56", 2))  # and which argument has the flags
_PR_SET_PDEATHSIG = 1
_SHARED_ANONYMOUS = 0x21  # MAP_SHARED | MAP_ANONYMOUS
_SOCK_STREAM, _SOCK_KIND = 1, 0xF
_CLONE_THREAD = 0x00010000
_ACCESS_MODE, _NO_ACCESS, _O_TRUNC = 0x3, 0x3, 0x200
_F_SETOWN, _F_SETSIG, _F_SETOWN_EX, _F_SETLEASE = 8, 10, 15, 1024


def assembled(machine: str = "") -> bytes:
    """The filter for this machine and this process; raises OSError where there is none."""
    ops, column = begun(machine)
    for number in numbers(_REFUSED + _ATTRIBUTES, column):
        ops += answered(number, errno.EPERM)
    for number in numbers(_UNKNOWN, column):
        ops += answered(number, errno.ENOSYS)
    ops += [*_processes(column), *_files(column)]
    shared = [
        op(LOAD, ARGS + 8 * 3),
        op(AND, _SHARED_ANONYMOUS),
        op(EQUAL, _SHARED_ANONYMOUS, 0, 1),
    ]
    ops += only_if(_MMAP[column], shared)
    stream = [
        op(LOAD, ARGS + 8),
        op(AND, _SOCK_KIND),
        op(EQUAL, _SOCK_STREAM, 0, 2),
        op(LOAD, ARGS),
        op(EQUAL, AF_UNIX, 1, 0),
    ]
    ops += only_if(_SOCKET[column], stream)
    ops += one_of(_SOCKETPAIR[column], {0: (AF_UNIX,), 1: STREAMS})
    return b"".join([*ops, op(RETURN, ALLOW)])


def _processes(column: int) -> list[bytes]:
    """Threads, and of other processes none: no signal either that input on a descriptor sends."""
    ops = answered(_TKILL[column], errno.EPERM)
    ops += only_if(_CLONE[column], [op(LOAD, ARGS), op(ANY_BIT, _CLONE_THREAD, 1, 0)])
    ops += only_if(_PRCTL[column], [op(LOAD, ARGS), op(EQUAL, _PR_SET_PDEATHSIG, 0, 1)])
    for number in numbers(_OF_ITSELF, column):
        ops += one_of(number, {0: (os.getpid(),)})
    for number in numbers(_OF_ITSELF_OR_0, column):
        ops += one_of(number, {0: (0, os.getpid())})
    # A lease halts whoever opens the file.
    refused = (_F_SETOWN, _F_SETSIG, _F_SETOWN_EX, _F_SETLEASE)
    return ops + _none_of(_FCNTL[column], 1, refused)


def _files(column: int) -> list[bytes]:
    """What would act on a file that Landlock asks nothing about.

    It lets any file be opened for neither reading nor writing, and ``ioctl`` changes a file's flags
    by such a descriptor. Before Linux 6.2 it lets an open that does not write empty a file.
    """
    refused = (_NO_ACCESS, _NO_ACCESS | _O_TRUNC, os.O_RDONLY | _O_TRUNC)
    ops = one_of(_IOCTL[column], {1: IOCTLS})
    for listed, flags in _OPENS:
        for number in numbers(listed, column):
            ops += _none_of(number, flags, refused, mask=_ACCESS_MODE | _O_TRUNC)
    return ops


def _none_of(
    number: int, argument: int, refused: tuple[int, ...], *, mask: int = 0xFFFFFFFF
) -> list[bytes]:
    """Refuse the call where what ``mask`` leaves of an argument is one of ``refused``."""
    tests = [op(LOAD, ARGS + 8 * argument), op(AND, mask)]
    *others, last = refused
    tests += [op(EQUAL, value, len(others) - i, 0) for i, value in enumerate(others)]
    return only_if(number, [*tests, op(EQUAL, last, 0, 1)])


def nameless(machine: str = "") -> bytes:
    """A filter besides, for a process that has the socket on which it listens."""
    ops, column = begun(machine)
    for number in numbers(_NAMING, column):
        ops += answered(number, errno.EPERM)
    return b"".join([*ops, op(RETURN, ALLOW)])
