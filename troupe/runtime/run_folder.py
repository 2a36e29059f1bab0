"""Names of the files that trainers write into a run folder, shared with their readers.

Owns the paths and the names of checkpoints. Lists folders, and never opens a file.
"""

import re
from pathlib import Path

EXPORT_FILE = "export.json"
"""In a folder of `troupe export`: which of its policies each agent of the job has."""
_STEP = re.compile(r"step-([0-9]{5}|[1-9][0-9]{5,})")


def checkpoints_folder(run_dir: Path, policy: str = "") -> Path:
    """Folder of the checkpoints: of the only trainer, or of the trainer of ``policy``.

    Example: ``checkpoints_folder(Path("a"), "tool") == Path("a/checkpoints/policies/tool")``.
    """
    folder = run_dir / "checkpoints"
    return folder / "policies" / policy if policy else folder


def groups_file(run_dir: Path, policy: str = "") -> Path:
    """File of the trained groups: of the only trainer, or of the trainer of ``policy``."""
    return run_dir / (f"groups-{policy}.jsonl" if policy else "groups.jsonl")


def part_names(name: str, count: int) -> list[str]:
    """The files of a state in ``count`` parts, in the order of their rows.

    Example: ``part_names("a", 1) == ["a.safetensors"]``; of 8 the fourth is
    "a.00003-of-00008.safetensors".
    """
    if count == 1:
        return [f"{name}.safetensors"]
    return [f"{name}.{rank:05d}-of-{count:05d}.safetensors" for rank in range(count)]


def step_name(step: int) -> str:
    """Folder of the checkpoint after ``step`` steps. Example: ``step_name(12) == "step-00012"``."""
    return f"step-{step:05d}"


def step_of(folder: Path) -> int:
    """The step of a checkpoint's folder; raises ValueError for another name."""
    if not (named := _STEP.fullmatch(folder.name)):
        raise ValueError(f"{folder.name!r} does not name a checkpoint, such as {step_name(12)}")
    return int(named[1])


def newest_first(folder: Path) -> list[Path]:
    """The complete checkpoints in ``folder``, newest first; ignores links and anything else."""
    candidates = (path for path in folder.glob("step-*") if _STEP.fullmatch(path.name))
    folders = (path for path in candidates if path.is_dir() and not path.is_symlink())
    return sorted(folders, key=step_of, reverse=True)
