"""A disk that loses what was not synced: power_cut.c remembers what was, ``cut`` goes back to it.

Strictly, a name survives once its folder was synced, and bytes once their file was; that is what
POSIX promises and less than most file systems keep. With a ``Random``, of everything that was not
synced some survives: a rename without its bytes, a part of a tail, zeros in its place.
"""

import ctypes
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from random import Random

SOURCE = Path(__file__).with_suffix(".c")
_SYNC_ALL = """
import sys
from pathlib import Path
from troupe.durable import sync_tree
sync_tree(Path(sys.argv[1]))
"""


@dataclass(frozen=True)
class _Entry:
    """A name in a folder: what it stood for, by the library's id."""

    is_folder: bool
    id: str


class LossyDisk:
    """The folder ``root``, of which only synced writes survive. ``work`` is beside it."""

    def __init__(self, root: Path, work: Path) -> None:
        self.root = root
        self._synced = work / "synced"
        self._after = work / "after"
        self._library_path = work / "power_cut.so"
        self._synced.mkdir(parents=True)
        build = ["cc", "-shared", "-fPIC", "-O1", "-o", str(self._library_path), str(SOURCE)]
        subprocess.run([*build, "-ldl"], check=True, timeout=60)
        self._library = ctypes.CDLL(str(self._library_path))
        self._paths: dict[str, Path] = {}

    @property
    def environment(self) -> dict[str, str]:
        """What a process needs so that its syncs count."""
        return {
            "LD_PRELOAD": str(self._library_path),
            "POWER_CUT_ROOT": str(self.root),
            "POWER_CUT_SYNCED": str(self._synced),
        }

    def identify(self, path: Path) -> str:
        """The library's id of a path; "" where the file system tells no time of birth."""
        buffer = ctypes.create_string_buffer(64)
        length = self._library.power_cut_identify(os.fsencode(path), buffer, 64)
        return buffer.value.decode() if length > 0 else ""

    def cut(self, random: Random | None = None) -> None:
        """Make ``root`` what is left of it; every process that wrote to it has ended."""
        paths = [self.root, *self.root.rglob("*")]
        self._paths = {self.identify(path): path for path in paths}
        self._make(self.identify(self.root), self._after, random)
        shutil.rmtree(self.root)
        self._after.rename(self.root)
        shutil.rmtree(self._synced)
        self._synced.mkdir()
        command = [sys.executable, "-c", _SYNC_ALL, str(self.root)]
        subprocess.run(command, env=os.environ | self.environment, check=True, timeout=120)

    def _make(self, folder_id: str, target: Path, random: Random | None) -> None:
        target.mkdir()
        synced, present = self._names(folder_id), self._present(folder_id)
        for name in sorted({*synced, *present}):
            entry = synced.get(name)
            if random is not None and present.get(name) != entry and random.random() < 0.5:
                entry = present.get(name)
            if entry is None:
                continue
            if entry.is_folder:
                self._make(entry.id, target / name, random)
            else:
                (target / name).write_bytes(self._bytes(entry.id, random))

    def _names(self, folder_id: str) -> dict[str, _Entry]:
        """The names that the folder had when it was synced last."""
        copy = self._synced / f"{folder_id}.folder"
        if not copy.is_file():
            return {}
        lines = (line.split(" ", 2) for line in copy.read_text().splitlines())
        return {name: _Entry(kind == "d", entry_id) for kind, entry_id, name in lines}

    def _present(self, folder_id: str) -> dict[str, _Entry]:
        folder = self._paths.get(folder_id)
        paths = folder.iterdir() if folder is not None and folder.is_dir() else ()
        return {
            path.name: _Entry(path.is_dir(), self.identify(path))
            for path in paths
            if path.is_dir() or path.is_file()
        }

    def _bytes(self, file_id: str, random: Random | None) -> bytes:
        copy, path = self._synced / file_id, self._paths.get(file_id)
        synced = copy.read_bytes() if copy.is_file() else b""
        present = path.read_bytes() if path is not None and path.is_file() else synced
        if random is None or present == synced:
            return synced
        if not present.startswith(synced):
            return random.choice([synced, present])
        tail = present[len(synced) : random.randint(len(synced), len(present))]
        return synced + random.choice([tail, b"\0" * len(tail)])
