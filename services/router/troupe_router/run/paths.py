"""Checks that a file lies in its run folder: trainers and users write there and may leave links."""

from pathlib import Path


def is_within(run_dir: Path, path: Path) -> bool:
    """Whether ``path`` is there and lies in ``run_dir`` once every link on the way is followed."""
    try:
        return path.resolve(strict=True).is_relative_to(run_dir.resolve())
    except (OSError, RuntimeError):
        return False
