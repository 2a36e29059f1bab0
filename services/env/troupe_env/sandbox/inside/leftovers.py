"""Measures and removes what a worker's programs write, where they have no mounts of their own.

It acts as the programs' user: the root of a pod may lack the right to look into that user's
folders, and nothing can be removed by it that a program could not remove. No program can signal it
meanwhile, since the real user stays root.
"""

import contextlib
import errno
import os
import stat
from collections.abc import Generator, Iterator
from pathlib import Path

_USUAL = ("/tmp", "/var/tmp", "/dev/shm", "/run/lock", "/dev/mqueue")
_BLOCK = 512


class Leftovers:
    """The files of the user ``uid`` in folders that every user may write to."""

    def __init__(self, uid: int) -> None:
        self._uid = uid
        self._shared = _shared_folders()
        self.after = _nothing
        """Called after each change of the user, which takes away what the kernel promised."""

    def is_over(self, folder: str, max_bytes: int, max_files: int) -> bool:
        """Whether the user's files in ``folder`` and in shared ones are more than allowed."""
        num_bytes, seen = 0, set[tuple[int, int]]()
        with self._as_user():
            _open_up(folder)
            for status in self._statuses([folder, *self._shared]):
                if status is None:
                    return True
                if (status.st_dev, status.st_ino) not in seen:
                    seen.add((status.st_dev, status.st_ino))
                    num_bytes += status.st_blocks * _BLOCK
                if num_bytes > max_bytes or len(seen) > max_files:
                    return True
        return False

    def remove(self, folder: str | None = None) -> None:
        """Remove the user's files in shared folders, and ``folder`` with all that is in it."""
        with self._as_user():
            if folder is not None:
                _open_up(folder)
                self._clear(folder)
            for shared in self._shared:
                self._clear(shared)
        if folder is not None:
            with contextlib.suppress(OSError):
                os.rmdir(folder)  # noqa: PTH106 (in step with the rest)

    @contextlib.contextmanager
    def _as_user(self) -> Generator[None]:
        gid, groups = os.getegid(), os.getgroups()
        try:
            os.setgroups([])
            os.setegid(self._uid)
            os.seteuid(self._uid)
            yield
        finally:
            os.seteuid(0)
            os.setegid(gid)
            os.setgroups(groups)
            self.after()

    def _statuses(self, folders: list[str]) -> Iterator[os.stat_result | None]:
        """Of each of the user's files; None for a path that is too long to be looked at."""
        pending = [*folders]
        while pending:
            folder = pending.pop()
            try:
                for entry in _entries(folder):
                    with contextlib.suppress(FileNotFoundError):
                        status = entry.stat(follow_symlinks=False)
                        is_own = status.st_uid == self._uid
                        if is_own:
                            yield status
                        if _may_hold_more(status, is_own):
                            path = f"{folder}/{entry.name}"
                            if is_own:
                                _open_up(path)
                            pending.append(path)
            except OSError as error:
                if error.errno == errno.ENAMETOOLONG:
                    yield None

    def _clear(self, folder: str) -> None:
        pending = [folder]
        while pending:
            path = pending.pop()
            with contextlib.suppress(OSError):
                number = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
                try:
                    for entry in _entries(path):
                        with contextlib.suppress(OSError):
                            status = entry.stat(follow_symlinks=False)
                            if status.st_uid == self._uid:
                                _remove(number, entry.name, status)
                            elif _may_hold_more(status, False):
                                pending.append(f"{path}/{entry.name}")
                finally:
                    os.close(number)


def _remove(folder: int, name: str, status: os.stat_result) -> None:
    """Remove a file or a tree of ``folder``, however deep: each folder of it is moved up first."""
    if not stat.S_ISDIR(status.st_mode):
        os.unlink(name, dir_fd=folder)
        return
    pending = [name]
    while pending:
        name = pending.pop()
        with contextlib.suppress(OSError):
            os.chmod(name, 0o700, dir_fd=folder)
            number = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=folder)
            try:
                for entry in os.listdir(number):  # noqa: PTH208 (of a descriptor)
                    try:
                        os.unlink(entry, dir_fd=number)
                    except OSError:
                        up = f".troupe-gone-{os.urandom(8).hex()}"  # a name that is not taken
                        with contextlib.suppress(OSError):
                            os.chmod(entry, 0o700, dir_fd=number)
                            os.rename(entry, up, src_dir_fd=number, dst_dir_fd=folder)
                            pending.append(up)
            finally:
                os.close(number)
            os.rmdir(name, dir_fd=folder)


def _entries(folder: str) -> list["os.DirEntry[str]"]:
    with os.scandir(folder) as entries:
        return [*entries]


def _may_hold_more(status: os.stat_result, is_own: bool) -> bool:
    return stat.S_ISDIR(status.st_mode) and (is_own or bool(status.st_mode & stat.S_IWOTH))


def _open_up(folder: str) -> None:
    """Let a folder that its program closed be looked into."""
    with contextlib.suppress(OSError):
        mode = os.lstat(folder).st_mode
        if mode & 0o700 != 0o700:
            os.chmod(folder, 0o700)  # noqa: PTH101 (in step with the rest)


def _shared_folders() -> list[str]:
    """Folders that every user may write to: usual ones, and those that are mounted."""
    mounted: list[str] = []
    with contextlib.suppress(OSError):
        mounted = [line.split()[1] for line in Path("/proc/self/mounts").read_text().splitlines()]
    found: dict[tuple[int, int], str] = {}
    for path in (*_USUAL, *mounted):
        with contextlib.suppress(OSError):
            status = os.lstat(path)
            if _may_hold_more(status, False):
                found.setdefault((status.st_dev, status.st_ino), path)
    return [*found.values()]


def _nothing() -> None: ...
