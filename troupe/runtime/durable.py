"""Files that stay after a power cut: whole as they were, or whole as they are now.

Owns the order of writing, flushing and renaming. Never decides what a file holds.
"""

import os
import secrets
from pathlib import Path


def replace_file(path: Path, data: bytes) -> None:
    """Let ``path`` hold ``data``, on disk when this returns; readers see the old file or the new.

    Raises OSError; the old file is left as it was then.
    """
    draft = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}.tmp")
    try:
        with draft.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Bring the names in ``folder`` to disk: a new file or folder is lost without it."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
