"""Files and folders that a power cut leaves whole: the one place that knows what must be synced.

A file's bytes survive once the file is synced; its name survives once the folder that holds the
name is synced. So what is replaced is written under another name, synced, renamed, and then its
folder is synced: after a power cut there is the old file or the new one. Every function returns
when its effect would survive; whatever rests on it comes after. A link in a file's place is never
written through: others may write to the folder. Never decides what a file holds.
"""

import fcntl
import os
import secrets
import shutil
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from troupe.errors import DeadlineError, UnavailableError

MAKE_TIMEOUT_S = 1800.0
_POLL_S = 0.1


class FileChangedError(UnavailableError):
    """A file is not as its only writer left it: it was cut, or somebody else wrote to it."""


def sync(path: Path) -> None:
    """Bring a file's bytes, or the names in a folder, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_tree(folder: Path) -> None:
    """Bring a folder to the disk with every file and folder in it."""
    for inner, _, names in os.walk(folder):
        for name in names:
            sync(Path(inner, name))
        sync(Path(inner))


def make_folder(path: Path) -> None:
    """Make ``path`` and the folders above it, as far as there are none."""
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    path.mkdir(parents=True, exist_ok=True)
    for folder in reversed(missing):
        sync(folder.parent)


def replace_file(path: Path, content: str | bytes, *, mode: int = 0o666) -> None:
    """Put a file with ``content`` in the place of ``path``; its folder is made if need be.

    ``mode`` is the new file's, less the umask. A write that fails leaves the old file.
    """
    with replacing(path, mode=mode) as file:
        file.write(content.encode() if isinstance(content, str) else content)


@contextmanager
def replacing(path: Path, *, mode: int = 0o666) -> Generator[BinaryIO]:
    """A new file to write to; at the end it takes the place of ``path``, as ``replace_file``."""
    make_folder(path.parent)
    with _drafting(path, mode) as file:
        yield file
    sync(path.parent)


def put_files(contents: Mapping[Path, bytes]) -> None:
    """Put many files of one folder, which is there, in place; its names are synced once."""
    for path, content in contents.items():
        with _drafting(path) as file:
            file.write(content)
    for folder in {path.parent for path in contents}:
        sync(folder)


@contextmanager
def _drafting(path: Path, mode: int = 0o666) -> Generator[BinaryIO]:
    """A new file that takes the place of ``path`` at the end; its name is not synced."""
    # Routers of two pods may write one file, under one pid.
    draft = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}.tmp")
    try:
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
            yield file
        sync(draft)
        draft.replace(path)
    except BaseException:
        with suppress(OSError):
            draft.unlink(missing_ok=True)
        raise


def put(draft: Path, target: Path) -> None:
    """Rename ``draft``, a file or a folder with all that is in it, to ``target``.

    A folder in the place of ``target`` is removed first: between the two there is none.
    """
    if draft.is_dir():
        sync_tree(draft)
        shutil.rmtree(target, ignore_errors=True)
        draft.rename(target)
    else:
        sync(draft)
        draft.replace(target)
    sync(target.parent)


def replace_folder(target: Path, write: Callable[[Path], object]) -> Path:
    """Let ``write`` fill a new folder, then put it in the place of ``target``; all or nothing."""
    draft = target.with_name(f".{target.name}-draft")
    shutil.rmtree(draft, ignore_errors=True)
    try:
        write(draft)
        put(draft, target)
    except BaseException:
        shutil.rmtree(draft, ignore_errors=True)
        raise
    return target


def make_once(
    target: Path,
    is_there: Callable[[], bool],
    write: Callable[[Path], object],
    timeout_s: float = MAKE_TIMEOUT_S,
) -> bool:
    """``replace_folder`` unless ``is_there()``, by one process at a time; whether it wrote.

    Two processes that want one folder of a cache make it once: the second waits for the first.

    Raises:
        DeadlineError: another process has not made it within ``timeout_s``.
    """
    if is_there():  # so a cache that can't be written serves what it has
        return False
    make_folder(target.parent)
    with sole_writer(target, timeout_s):
        if is_there():
            return False
        replace_folder(target, write)
    return True


@contextmanager
def sole_writer(target: Path, timeout_s: float) -> Generator[None]:
    """Keep other processes that ask here too from writing ``target``; its folder is there.

    Raises:
        DeadlineError: another process has held it for ``timeout_s``.
    """
    deadline = time.monotonic() + timeout_s
    with target.with_name(f".{target.name}.lock").open("ab") as lock:  # its process's end frees it
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError as error:
                if time.monotonic() > deadline:
                    raise DeadlineError(
                        f"another process has been writing {target} for {timeout_s:.0f} s; wait "
                        "for it or end it, then try again"
                    ) from error
                time.sleep(_POLL_S)
        yield


def append(path: Path, at: int, data: bytes) -> None:
    """Append ``data`` to a file of ``at`` bytes, whole or not at all; 0: there may be none.

    Raises:
        FileChangedError: the file has another length, so nothing is written.
        OSError: it can't be written, or a link or a pipe is in its place; nothing is written.
    """
    with open(path, "ab", buffering=0, opener=_open_plain) as file:
        size = file.seek(0, os.SEEK_END)
        if size != at:
            raise FileChangedError(
                f"{path} has {size} bytes, and its last writer left {at}: it was cut, or another "
                "process writes to it. The job's next controller reads it again."
            )
        try:
            rest = memoryview(data)
            while rest:
                rest = rest[file.write(rest) :]
            os.fsync(file.fileno())
        except OSError:
            with suppress(OSError):
                file.truncate(at)
            raise
    if at == 0:  # also where an earlier try made the file and then failed
        sync(path.parent)


def cut(path: Path, size: int) -> None:
    """Cut the end of a file off; raises FileChangedError where it is shorter than ``size``."""
    with open(path, "r+b", opener=_open_plain) as file:
        if file.seek(0, os.SEEK_END) < size:
            raise FileChangedError(f"{path} has fewer than {size} bytes; it is not made longer.")
        file.truncate(size)
        os.fsync(file.fileno())


def _open_plain(path: str, flags: int) -> int:
    """Open no link, and wait for no reader of a pipe."""
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
