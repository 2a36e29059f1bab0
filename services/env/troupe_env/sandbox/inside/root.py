"""The file tree that programs see: read-only system folders, four devices, an empty /tmp.

Built once a worker, in the worker's own mount namespace; each program then gets a fresh tmpfs on
/tmp. There is no procfs and no /sys. Never shows a folder that the service did not name.
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from . import kernel

_SYSTEM = ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/usr")
_ETC = ("/etc/ld.so.cache", "/etc/localtime", "/etc/alternatives")
_DEVICES = ("null", "zero", "full", "random", "urandom")
_READ_ONLY = kernel.MS_RDONLY | kernel.MS_NOSUID | kernel.MS_NODEV
STDIN = "/tmp/.stdin"
"""Where a program's standard input lies; /dev/stdin leads there."""


class Shown(NamedTuple):
    """What programs see: ``folders`` read-only, ``masked`` ones empty, ``packages`` by name below
    /packages. Where there are packages, /proc/self/exe is a plain link to ``executable``."""

    folders: Sequence[str]
    masked: Sequence[str]
    packages: Mapping[str, str]
    executable: str


def build(shown: Shown, uid: int) -> None:
    """Make the tree and enter it."""
    kernel.mount("none", "/", "", kernel.MS_REC | kernel.MS_PRIVATE)
    kernel.mount("tmpfs", "/tmp", "tmpfs", kernel.MS_NOSUID | kernel.MS_NODEV, "mode=755")
    os.chdir("/tmp")
    Path("old").mkdir()
    Path("new").mkdir()
    kernel.pivot_root(".", "old")
    os.chdir("/")
    kernel.mount("tmpfs", "/new", "tmpfs", kernel.MS_NOSUID, "mode=755,size=4m,nr_inodes=4096")
    for path in _SYSTEM:
        _show(path)
    for path in [*_ETC, *shown.folders]:
        if not _is_shown(path):
            _show(path)
    Path("/new/empty").mkdir(mode=0o555)
    for path in shown.masked:
        if Path("/new" + path).is_dir():
            kernel.mount("/new/empty", "/new" + path, "", kernel.MS_BIND)
    _packages(shown)
    _devices()
    _accounts(uid)
    kernel.set_mount_attributes("/new", kernel.MS_RDONLY | kernel.MS_NOSUID)
    os.chdir("/new")
    kernel.pivot_root(".", ".")
    kernel.umount_lazily(".")
    os.chdir("/")


def private_tmp(size_bytes: int, num_inodes: int) -> None:
    """A fresh /tmp of this size, in a program's own mount namespace."""
    options = f"mode=700,size={size_bytes},nr_inodes={num_inodes}"
    kernel.mount("tmpfs", "/tmp", "tmpfs", kernel.MS_NOSUID | kernel.MS_NODEV, options)


def _is_shown(path: str) -> bool:
    return os.path.lexists("/new" + path)


def _show(path: str) -> None:
    """The host's ``path``, read-only, at the same place; a link stays a link."""
    old, new = Path("/old" + path), Path("/new" + path)
    if old.is_symlink():
        new.parent.mkdir(parents=True, exist_ok=True)
        new.symlink_to(old.readlink())
    elif old.is_dir():
        new.mkdir(parents=True, exist_ok=True)
        kernel.mount(str(old), str(new), "", kernel.MS_BIND | kernel.MS_REC)
        kernel.set_mount_attributes(str(new), _READ_ONLY)
    elif old.is_file():
        new.parent.mkdir(parents=True, exist_ok=True)
        new.touch()
        kernel.mount(str(old), str(new), "", kernel.MS_BIND)
        kernel.set_mount_attributes(str(new), _READ_ONLY)


def _packages(shown: Shown) -> None:
    """Compiled tools such as yosys ask for /proc/self/exe and stop without it; the link is a file
    of the read-only tree and leads nowhere that programs do not see."""
    for name, folder in shown.packages.items():
        new = Path("/new/packages", name)
        new.mkdir(parents=True)
        kernel.mount("/old" + folder, str(new), "", kernel.MS_BIND)
        kernel.set_mount_attributes(str(new), _READ_ONLY)
    if shown.packages:
        own = Path("/new/proc/self")
        own.mkdir(parents=True)
        (own / "exe").symlink_to(shown.executable)


def _devices() -> None:
    for name in ("dev", "tmp"):
        Path("/new", name).mkdir(exist_ok=True)
    for name in _DEVICES:
        new = Path("/new/dev", name)
        new.touch()
        kernel.mount(f"/old/dev/{name}", str(new), "", kernel.MS_BIND)
    Path("/new/dev/shm").symlink_to("/tmp")
    Path("/new/dev/stdin").symlink_to(STDIN)


def _accounts(uid: int) -> None:
    etc = Path("/new/etc")
    etc.mkdir(exist_ok=True)
    (etc / "passwd").write_text(f"agent:x:{uid}:{uid}:agent:/tmp:/bin/sh\n")
    (etc / "group").write_text(f"agent:x:{uid}:\n")
    (etc / "hosts").write_text("127.0.0.1 localhost\n")
