"""Writes a team to a folder, whole or not at all."""

from pathlib import Path

from troupe.durable import make_folder, replace_folder
from troupe.errors import ConflictError
from troupe.publishing.content import TeamContent
from troupe.publishing.manifest import MANIFEST


def write_team(content: TeamContent, folder: Path) -> str:
    """Write the files; a team that is there already is replaced. Returns the folder.

    Raises ConflictError for a folder that holds anything else.
    """
    target = folder.expanduser()
    is_taken = target.exists() and (not target.is_dir() or any(target.iterdir()))
    if is_taken and not (target / MANIFEST).is_file():
        raise ConflictError(f"{target} holds something that is no team; give another folder")
    target = target.resolve()
    make_folder(target.parent)

    def write(draft: Path) -> None:
        for name, file in content.files.items():
            path = draft / name
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("wb") as opened:
                opened.writelines(file.chunks())

    return str(replace_folder(target, write))
