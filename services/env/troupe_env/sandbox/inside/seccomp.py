"""The seccomp filter of a program: an allow-list of system calls, assembled to BPF by hand.

By hand because the interpreter that runs programs has the standard library only. Whatever is not
listed fails with EPERM, or with ENOSYS where the C library then takes an older call. ``sync`` is
not: it writes all of the host's file systems out, and can't be killed meanwhile.
"""

import ctypes
import errno

from . import kernel
from .bpf import (
    AF_UNIX,
    ALLOW,
    ANY_BIT,
    ARGS,
    AT_LEAST,
    EQUAL,
    ERRNO,
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

# name:number, for x86-64 and then for arm64 where it has the call.
_ALLOWED = """
    brk:12:214 chdir:80:49 clock_getres:229:114 clock_gettime:228:113 clock_nanosleep:230:115
    close:3:57 close_range:436:436 copy_file_range:326:285 dup:32:23 dup3:292:24
    epoll_create1:291:20 epoll_ctl:233:21 epoll_pwait:281:22 epoll_pwait2:441:441 eventfd2:290:19
    execve:59:221 exit:60:93 exit_group:231:94 faccessat:269:48 faccessat2:439:439
    fadvise64:221:223 fallocate:285:47 fchdir:81:50 fchmod:91:52 fchmodat:268:53 fchown:93:55
    fchownat:260:54 fcntl:72:25 fdatasync:75:83 flock:73:32 fstat:5:80 fstatfs:138:44 fsync:74:82
    ftruncate:77:46 futex:202:98 get_robust_list:274:100 getcpu:309:168 getcwd:79:17
    getdents64:217:61 getegid:108:177 geteuid:107:175 getgid:104:176 getgroups:115:158
    getitimer:36:102 getpeername:52:205 getpgid:121:155 getpid:39:172 getppid:110:173
    getpriority:140:141 getrandom:318:278 getresgid:120:150 getresuid:118:148 getrlimit:97:163
    getrusage:98:165 getsid:124:156 getsockname:51:204 getsockopt:55:209 gettid:186:178
    gettimeofday:96:169 getuid:102:174 kill:62:129 linkat:265:37 lseek:8:62 madvise:28:233
    membarrier:324:283 mincore:27:232 mkdirat:258:34 mlock:149:228 mmap:9:222 mprotect:10:226
    mremap:25:216 msync:26:227 munlock:150:229 munmap:11:215 nanosleep:35:101 newfstatat:262:79
    openat:257:56 openat2:437:437 pipe2:293:59 pkey_alloc:330:289 pkey_free:331:290
    pkey_mprotect:329:288 ppoll:271:73 pread64:17:67 preadv:295:69 preadv2:327:286 pselect6:270:72
    pwrite64:18:68 pwritev:296:70 pwritev2:328:287 read:0:63 readlinkat:267:78 readv:19:65
    recvfrom:45:207 recvmsg:47:212 renameat:264:38 renameat2:316:276 restart_syscall:219:128
    rseq:334:293 rt_sigaction:13:134 rt_sigpending:127:136 rt_sigprocmask:14:135
    rt_sigqueueinfo:129:138 rt_sigreturn:15:139 rt_sigsuspend:130:133 rt_sigtimedwait:128:137
    sched_get_priority_max:146:125 sched_get_priority_min:147:126 sched_getaffinity:204:123
    sched_getparam:143:121 sched_getscheduler:145:120 sched_yield:24:124 sendfile:40:71
    sendmsg:46:211 sendto:44:206 set_robust_list:273:99 set_tid_address:218:96 setitimer:38:103
    setpgid:109:154 setrlimit:160:164 setsid:112:157 setsockopt:54:208 shutdown:48:210
    sigaltstack:131:132 splice:275:76 statfs:137:43 statx:332:291 symlinkat:266:36
    sync_file_range:277:84 sysinfo:99:179 tgkill:234:131 timer_create:222:107 timer_delete:226:111
    timer_getoverrun:225:109 timer_gettime:224:108 timer_settime:223:110 timerfd_create:283:85
    timerfd_gettime:287:87 timerfd_settime:286:86 times:100:153 tkill:200:130 truncate:76:45
    umask:95:166 uname:63:160 unlinkat:263:35 utimensat:280:88 wait4:61:260 waitid:247:95
    write:1:64 writev:20:66
    access:21 alarm:37 arch_prctl:158 chmod:90 chown:92 creat:85 dup2:33 epoll_create:213
    epoll_wait:232 eventfd:284 fork:57 futimesat:261 getdents:78 getpgrp:111 lchown:94 link:86
    lstat:6 mkdir:83 open:2 pause:34 pipe:22 poll:7 readlink:89 rename:82 rmdir:84 select:23
    stat:4 symlink:88 time:201 unlink:87 utime:132 utimes:235 vfork:58
"""
_NUMBERS = {  # calls that are judged by an argument, or refused by ENOSYS
    "clone": (56, 220),
    "clone3": (435, 435),
    "ioctl": (16, 29),
    "memfd_create": (319, 279),
    "prctl": (157, 167),
    "prlimit64": (302, 261),
    "socket": (41, 198),
    "socketpair": (53, 199),
}
_OF_COMMANDS = """
    accept:43:202 accept4:288:242 bind:49:200 connect:42:203 fgetxattr:193:10 flistxattr:196:13
    getxattr:191:8 lgetxattr:192:9 listen:50:201 listxattr:194:11 llistxattr:195:12
    recvmmsg:299:243 sendmmsg:307:269
"""
_FAMILIES = (AF_UNIX, 2, 10)  # IPv4, IPv6
_NEW_NAMESPACES = 0x7E020000  # CLONE_NEW{NS,CGROUP,UTS,IPC,USER,PID,NET}
_FIRST_NEW_CALL = 424  # numbers from here on are the same everywhere, and callers expect ENOSYS
_PRCTLS = (1, 2, 3, 15, 16, 21, 38, 39, 0x53564D41)  # death signal, dumpable, name, seccomp, NNP


def assemble(machine: str = "", *, is_long_lived: bool = False) -> bytes:
    """The filter for this machine (or ``machine``); raises OSError where there is none.

    ``is_long_lived``: for a command in a network namespace of its own, which may make sockets in
    it, and read the attributes of files.
    """
    ops, column = begun(machine)
    for listed in numbers(_ALLOWED + (_OF_COMMANDS if is_long_lived else ""), column):
        ops += [op(EQUAL, listed, 0, 1), op(RETURN, ALLOW)]
    number = {name: columns[column] for name, columns in _NUMBERS.items()}
    ops += only_if(number["clone"], [op(LOAD, ARGS), op(ANY_BIT, _NEW_NAMESPACES, 0, 1)])
    ops += one_of(number["ioctl"], {1: IOCTLS})
    ops += one_of(number["prctl"], {0: _PRCTLS})
    ops += one_of(number["prlimit64"], {0: (0,)})
    if is_long_lived:
        ops += one_of(number["socket"], {0: _FAMILIES})
    ops += one_of(number["socketpair"], {0: (AF_UNIX,), 1: STREAMS})
    for name in ("clone3", "memfd_create"):
        ops += answered(number[name], errno.ENOSYS)
    ops += [
        op(AT_LEAST, _FIRST_NEW_CALL, 0, 1),
        op(RETURN, ERRNO | errno.ENOSYS),
        op(RETURN, ERRNO | errno.EPERM),
    ]
    return b"".join(ops)


class _Program(ctypes.Structure):
    _fields_ = (("len", ctypes.c_ushort), ("filter", ctypes.c_void_p))


class Filter:
    """A filter that is assembled once and loaded by each program's first process.

    ``code``: another filter than that of programs.
    """

    def __init__(self, code: bytes = b"") -> None:
        code = code or assemble()
        self._code = ctypes.create_string_buffer(code, len(code))
        self._program = _Program(len(code) // 8, ctypes.addressof(self._code))

    def load(self) -> None:
        """Bind this process and all that it starts; there is no way back."""
        kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
        kernel.prctl(kernel.PR_SET_SECCOMP, 2, ctypes.addressof(self._program))

    def load_everywhere(self) -> None:
        """Bind the threads that run already, too."""
        kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
        kernel.filter_all_threads(ctypes.addressof(self._program))
