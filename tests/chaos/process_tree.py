"""Which processes there are below this one: the proof that a kill leaves no stray behind.

While ``adopting`` is entered, this process is the child subreaper: whatever loses its parent
becomes its child, however it was started, so nothing escapes the count.
"""

import ctypes
import os
import re
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_PR_SET_CHILD_SUBREAPER, _PR_GET_CHILD_SUBREAPER = 36, 37
POLL_S = 0.02
_ESTABLISHED = "01"
_NUM_LOOKS = 10
_SERVICE = re.compile(r"-m troupe_(\w+)")


@contextmanager
def adopting() -> Iterator[None]:
    """Be the parent of orphaned descendants for a while; may be entered again inside."""
    libc = ctypes.CDLL(None, use_errno=True)
    before = ctypes.c_int()

    def be(value: int) -> None:
        done = libc.prctl(_PR_SET_CHILD_SUBREAPER, value, 0, 0, 0)
        assert done == 0, os.strerror(ctypes.get_errno())

    done = libc.prctl(_PR_GET_CHILD_SUBREAPER, ctypes.byref(before), 0, 0, 0)
    assert done == 0, os.strerror(ctypes.get_errno())
    be(1)
    try:
        yield
    finally:
        be(before.value)


def state_of(pid: int) -> str:
    """The letter of proc(5): R, S, T, Z, ...; empty when there is no such process."""
    fields = _stat(pid)
    return fields[0] if fields else ""


def descendants(ancestor: int) -> set[int]:
    """Every living process below ``ancestor``; adopted zombies are reaped on the way."""
    children: defaultdict[int, list[int]] = defaultdict(list)
    states: dict[int, str] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit() and (fields := _stat(int(folder.name))):
            states[int(folder.name)] = fields[0]
            children[int(fields[1])].append(int(folder.name))
    found: set[int] = set()
    pending = list(children[ancestor])
    while pending:
        pid = pending.pop()
        pending += children[pid]
        if states[pid] not in "ZX":
            found.add(pid)
        elif ancestor == os.getpid():
            with suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
    return found


def command_of(pid: int) -> str:
    """The command line, for messages."""
    try:
        raw = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return "gone"
    return raw.replace(b"\0", b" ").decode(errors="replace").strip()


def role_at(port: int) -> str:
    """Which service holds the loopback connection that begins at ``port``; "" when none does."""
    wanted = ""
    for _ in range(_NUM_LOOKS):
        if wanted := _socket_at(port):
            break
        time.sleep(POLL_S)
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit() and (found := _SERVICE.search(command_of(int(folder.name)))):
            with suppress(OSError):
                if any(_target(each) == wanted for each in (folder / "fd").iterdir()):
                    return found.group(1)
    return ""


def _socket_at(port: int) -> str:
    """As /proc/<pid>/fd shows it; "" when the kernel's list, which others change, skipped it."""
    tables = (Path(f"/proc/net/{name}").read_text() for name in ("tcp", "tcp6"))
    for line in "".join(tables).splitlines():
        fields = line.split()
        if fields[1].endswith(f":{port:04X}") and fields[3] == _ESTABLISHED:
            return f"socket:[{fields[9]}]"
    return ""


def _target(link: Path) -> str:
    try:
        return str(link.readlink())
    except OSError:
        return ""


def wait_for(what: str, is_so: Callable[[], bool], *, within_s: float) -> float:
    """Seconds until ``is_so()``; fails when it is not so in time."""
    began = time.monotonic()
    while not is_so():
        assert time.monotonic() - began < within_s, f"not within {within_s:g} s: {what}"
        time.sleep(POLL_S)
    return time.monotonic() - began


def _stat(pid: int) -> list[str]:
    """Fields of /proc/<pid>/stat from the state on."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return []
    return text.rpartition(")")[2].split()
