"""What a bundle's code tries, as Python expressions, and what lies outside it."""

import ctypes
import os
import platform
import resource
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

SECRET = "not-for-bundles"
_libc = ctypes.CDLL(None)
_PRIVATE, _REMOVE, _STAT = 0, 0, 2  # of System V's shared memory
_C = "__import__('ctypes').CDLL(None)"
_TGSIGQUEUEINFO = {"x86_64": 297, "aarch64": 240}.get(platform.machine(), -1)
LOOK = {
    "environment": "dict(__import__('os').environ)",
    "environment of the env service": "open('/proc/{pid}/environ', 'rb').read()",
    "own process folder": "open('/proc/self/environ', 'rb').read()",
    "memory of the env service": "open('/proc/{pid}/mem', 'rb').read(1)",
    "a key of the service": "open('{secret}').read()",
    "the folder of bundles": "__import__('os').listdir('../..')",
    "root": "__import__('os').listdir('/')",
    "etc": "open('/etc/passwd').read()",
    "home": "__import__('os').listdir('/root')",
}
ACT = {
    "write beside itself": "open('x', 'w')",
    "change itself": "open('my_task.py', 'a')",
    "mode of itself": "__import__('os').chmod('my_task.py', 0o777)",
    "mode by a descriptor": "__import__('os').fchmod(open('my_task.py').fileno(), 0o777)",
    "flags of itself": "__import__('fcntl').ioctl(open('my_task.py'), 0x40086602, bytes(8))",
    "mode of a file": "__import__('os').chmod('{secret}', 0o666)",
    "mode of a folder": "__import__('os').chmod('{folder}', 0)",
    "owner of a file": "__import__('os').chown('{secret}', -1, -1)",
    "dates of a file": "__import__('os').utime('{secret}', (0, 0))",
    "attributes of a file": "__import__('os').setxattr('{secret}', 'user.x', b'x')",
    "empty a file": "__import__('os').truncate('{secret}', 0)",
    "empty a file by opening it": "(o := __import__('os')).open('{secret}', 3 | o.O_TRUNC)",
    "empty itself": "(o := __import__('os')).open('my_task.py', o.O_TRUNC)",
    "open for no access": "__import__('os').open('{secret}', 3)",
    "write to tmp": "open('/tmp/bundle', 'w')",
    "remove": "__import__('os').unlink('{secret}')",
    "program": "__import__('subprocess').run(['/bin/true'])",
    "shell": "__import__('os').system('true') and 1/0",
    "fork": "__import__('os').fork()",
    "kill the env service": "__import__('os').kill({pid}, 9)",
    "queue a signal": f"{_C}.sigqueue({{bystander}}, 9, None) == -1 and 1/0",
    "queue a signal for a thread": (
        f"{_C}.syscall({_TGSIGQUEUEINFO}, {{bystander}}, {{bystander}}, 9, "
        "(__import__('ctypes').c_int * 32)(9, 0, -1)) == -1 and 1/0"
    ),
    "signals by a pipe": "(f := __import__('fcntl')).fcntl(0, f.F_SETOWN, {bystander})",
    "which signal a pipe sends": "__import__('fcntl').fcntl(0, 10, 9)",
    "signals by a socket": (
        "__import__('fcntl').ioctl(__import__('socket').socketpair()[0], 0x8901, "
        "({bystander}).to_bytes(4, 'little'))"
    ),
    "network": "__import__('socket').create_connection(('127.0.0.1', {port}), 2)",
    "datagram": "__import__('socket').socket(2, 2)",
    "datagram by a pair": (
        "__import__('socket').socketpair(1, 2)[0].sendto(b'from a bundle', '{socket}')"
    ),
    "another socket": "__import__('socket').socket(1).connect('{socket}')",
    "limits of another process": "__import__('resource').prlimit({bystander}, 0, (1, 1))",
    "limits of the env service": "__import__('resource').prlimit({pid}, 4, (0, 0))",
    "processors of another": "__import__('os').sched_setaffinity({bystander}, [0])",
    "trace": "__import__('ctypes').CDLL(None).ptrace(16, {pid}, 0, 0) == -1 and 1/0",
    "namespaces": "__import__('ctypes').CDLL(None).unshare(0x10000000) == -1 and 1/0",
    "memory of others": f"{_C}.shmctl({{shared}}, 0, None) == -1 and 1/0",
    "names in a folder": (
        f"{_C}.inotify_add_watch({_C}.inotify_init(), b'{{folder}}', 4095) == -1 and 1/0"
    ),
    "all files to disk": f"{_C}.syncfs(0) == -1 and 1/0",
    "hold up whoever opens": "__import__('fcntl').fcntl(open('my_task.py'), 1024, 0)",
    "memory": "len(b'x' * (3 << 30))",
    "shared memory": "__import__('mmap').mmap(-1, 1 << 20)",
    "shared zeros": "__import__('mmap').mmap(__import__('os').open('/dev/zero', 0), 4096, prot=1)",
    "file in memory": "__import__('os').memfd_create('x')",
    "outlive its parent": "__import__('ctypes').CDLL(None).prctl(1, 0, 0, 0, 0) == -1 and 1/0",
    "name of a socket": "__import__('socket').socket(1).bind('../s/another')",
}
ERRORS = ("PermissionError", "ZeroDivisionError", "OSError", "MemoryError", "BlockingIOError")
"""How an expression of ACT ends that was refused."""
HONEST = {
    "numpy": (
        "__import__('numpy').ones((300, 300)).dot(__import__('numpy').ones(300)).sum()",
        90000.0,
    ),
    "threads": (
        "[*__import__('concurrent.futures').futures.ThreadPoolExecutor(16).map(abs, [-1])]",
        [1],
    ),
    "a mapped file": ("__import__('numpy').memmap('my_task.py', mode='r')[1]", ord("i")),
    "a mapped module": (
        "__import__('mmap').mmap((f := open('words.py')).fileno(), 0, access=1)[:4]",
        b"WORD",
    ),
    "private memory": ("len(__import__('mmap').mmap(-1, 1 << 20, flags=0x22))", 1 << 20),
    "callback": ("(c := __import__('ctypes')).CFUNCTYPE(c.c_int)(lambda: 7)()", 7),
    "own limits": ("__import__('resource').prlimit(__import__('os').getpid(), 4)", (0, 0)),
    "own processors": (
        "(o := __import__('os')).sched_setaffinity(0, o.sched_getaffinity(0))",
        None,
    ),
}
"""What honest code does, and what comes of it."""


class Outside:
    """Files, memory and a process that are none of a bundle's business."""

    def __init__(self, folder: Path, bystander: "subprocess.Popen[bytes]") -> None:
        self._key = folder / "tls.key"
        self._key.write_text(SECRET)
        self._folder = folder / "runs"
        self._folder.mkdir()
        (folder / "socket").touch()
        self._bystander = bystander
        self._shared = _libc.shmget(_PRIVATE, 4096, 0o600)
        self.fields: dict[str, Any] = {
            "pid": os.getpid(),
            "secret": self._key,
            "folder": self._folder,
            "socket": folder / "socket",
            "bystander": bystander.pid,
            "shared": self._shared,
        }

    def seen(self) -> list[Any]:
        """What a bundle could have changed; raises where the process no longer answers."""
        assert self._bystander.stdin is not None and self._bystander.stdout is not None
        self._bystander.stdin.write(b"still here\n")
        self._bystander.stdin.flush()
        return [
            self._bystander.stdout.readline(),
            resource.prlimit(self._bystander.pid, resource.RLIMIT_CPU),
            os.sched_getaffinity(self._bystander.pid),
            resource.getrlimit(resource.RLIMIT_CORE),
            self._key.read_text(),
            [(at.st_mode, at.st_mtime_ns) for at in (self._key.stat(), self._folder.stat())],
            os.listxattr(self._key),
            _libc.shmctl(self._shared, _STAT, ctypes.create_string_buffer(256)),
        ]

    def close(self) -> None:
        """Remove what outlives its process."""
        _libc.shmctl(self._shared, _REMOVE, None)


@contextmanager
def outside(folder: Path) -> Iterator[Outside]:
    """They exist meanwhile; ``folder`` holds the file and the folder."""
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as bystander:
        others = Outside(folder, bystander)
        try:
            yield others
        finally:
            others.close()
            bystander.kill()
