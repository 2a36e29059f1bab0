"""Every run folder of a runs folder, with the job that it holds or the reason why it holds none.

Lists from the files alone, so it works without Redis. A folder that is broken stops no other.
"""

import os
from dataclasses import dataclass
from pathlib import Path

from troupe_router.jobs.job_file import BrokenFolderError, JobHead, is_job_id, read_job


@dataclass(frozen=True, slots=True)
class RunFolder:
    """One run folder. ``head`` is None where ``fault`` says why, or where the folder is empty.

    ``is_recorded``: by ``job.json``; what an earlier version left is guessed from other files.
    """

    path: Path
    head: JobHead | None = None
    fault: str = ""
    is_recorded: bool = False

    @property
    def is_deleted(self) -> bool:
        """Whether the user deleted the job and left its files."""
        return self.head is not None and self.head.deleted_at > 0


def names(runs_dir: Path) -> list[str]:
    """Names of the run folders, sorted. Links, files and other folders are none."""
    try:
        with os.scandir(runs_dir) as entries:
            return sorted(
                entry.name
                for entry in entries
                if is_job_id(entry.name) and entry.is_dir(follow_symlinks=False)
            )
    except FileNotFoundError:
        return []


def run_folder(runs_dir: Path, name: str) -> RunFolder:
    """The run folder of this name, which ``names`` gave."""
    path = runs_dir / name
    try:
        stored = read_job(path)
    except BrokenFolderError as error:
        return RunFolder(path, fault=error.message)
    if stored is None:
        return RunFolder(path)
    return RunFolder(path, stored.head, is_recorded=stored.is_recorded)


def run_folders(runs_dir: Path) -> list[RunFolder]:
    """Every run folder, by name."""
    return [run_folder(runs_dir, name) for name in names(runs_dir)]
