"""Names of what trainers write into a run folder, for whoever reads it there.

Owns the paths alone. Never opens a file.
"""

from pathlib import Path


def checkpoints_folder(run_dir: Path, policy: str = "") -> Path:
    """Folder of the checkpoints: of the one trainer, or of the trainer that ``policy`` has.

    Example: ``checkpoints_folder(Path("a"), "tool") == Path("a/checkpoints/policies/tool")``.
    """
    folder = run_dir / "checkpoints"
    return folder / "policies" / policy if policy else folder


def groups_file(run_dir: Path, policy: str = "") -> Path:
    """The groups that were trained: by the one trainer, or by the trainer that ``policy`` has."""
    return run_dir / (f"groups-{policy}.jsonl" if policy else "groups.jsonl")
