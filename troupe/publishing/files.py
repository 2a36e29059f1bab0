"""Files of a published team: which kinds may be in it, their digests, and that they stay inside.

Never loads a tensor. Pickles are refused: they run code when they are read.
"""

import errno
import hashlib
import json
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

from pydantic import Field

from troupe.errors import InvalidArgumentError, NotFoundError
from troupe.spec.base import SpecModel

SUFFIXES = frozenset({".safetensors", ".json", ".jinja", ".txt", ".model"})
"""Weights, configurations, chat templates and tokenizers: nothing that runs when it is loaded."""
_PICKLES = frozenset({".bin", ".pt", ".pth", ".pkl", ".pickle", ".ckpt", ".npy", ".npz"})
_CODE = frozenset({".py", ".pyc", ".so"})
_UNLISTED = frozenset({"README.md", "LICENSE", "NOTICE", ".gitattributes", ".gitignore"})
"""Files that no loader reads; everything else in a folder of weights must be listed."""
_IDENTITY = ("config.json", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja")

_OF_FILES = frozenset(
    {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM}
    | {errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EEXIST}
)
"""What an OSError says of files; other errors may be a connection's."""


class FileEntry(SpecModel):
    """One file by its digest. Example: ``FileEntry(sha256="9f86...", size_bytes=4)``."""

    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    """SHA-256, hexadecimal."""
    size_bytes: int = Field(ge=0)
    """Its size."""


@contextmanager
def file_errors() -> Generator[None]:
    """Failures with files of this machine as InvalidArgumentError: no other try mends them."""
    try:
        yield
    except OSError as error:
        if error.errno not in _OF_FILES:
            raise
        raise InvalidArgumentError(
            f"{error.filename or 'a file'} can't be read or written here ({error.strerror}); see "
            "that it is there, and that its disk has free space"
        ) from error


def file_sha256(path: Path) -> str:
    """SHA-256 of a file, hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def entries_of(folder: Path) -> dict[str, FileEntry]:
    """The files of weights in ``folder``, by name; cards are left out.

    Raises InvalidArgumentError for a pickle, code, a link or a folder: nothing of it is safe to
    send.
    """
    return {path.name: _entry(path) for path in _listed(folder)}


def verify_entries(folder: Path, entries: Mapping[str, FileEntry]) -> None:
    """Raise InvalidArgumentError unless ``folder`` holds these files with these digests alone."""
    if unlisted := sorted({path.name for path in _listed(folder)} - entries.keys()):
        raise InvalidArgumentError(
            f"{folder / unlisted[0]} is not in the team's manifest: a loader could read it. Remove "
            "the file, or fetch the team again"
        )
    for name, entry in entries.items():
        path = inside(folder, name)
        if not path.is_file():
            raise NotFoundError(f"{path} is in the manifest and not there; fetch the team again")
        if path.stat().st_size != entry.size_bytes or file_sha256(path) != entry.sha256:
            raise InvalidArgumentError(
                f"{path} is not the file of the manifest ({entry.sha256[:16]}..., "
                f"{entry.size_bytes} bytes); fetch the team again"
            )


def inside(folder: Path, name: str) -> Path:
    """``folder / name``; raises InvalidArgumentError where that leads out of ``folder``."""
    pure = PurePosixPath(name)
    is_plain = name == str(pure) and not pure.is_absolute() and ".." not in pure.parts
    if not is_plain or "\\" in name or "\0" in name:
        raise InvalidArgumentError(f"'{name}' in the manifest is not a plain path inside the team")
    path = folder / pure
    if path.resolve() != folder.resolve() / pure:
        raise InvalidArgumentError(f"{path} is a link; a team's files must lie in its folder")
    return path


def model_digest(folder: Path) -> str:
    """SHA-256 of what makes a model what it is: weights, configuration, tokenizer, template.

    Over the files' names and digests, so it needs no other order than that of the names. "" where
    not all weights are there: a hub's cache may hold a tokenizer alone.
    """
    if not (weights := _loaded_weights(folder)):
        return ""
    names = sorted({*weights, *_IDENTITY})
    paths = [folder / name for name in names if (folder / name).is_file()]
    text = "".join(f"{path.name}\0{file_sha256(path)}\n" for path in paths)
    return hashlib.sha256(text.encode()).hexdigest()


def _loaded_weights(folder: Path) -> list[str]:
    """The files that a loader takes, not `consolidated.safetensors` and such; none unless all are.

    Raises InvalidArgumentError for an index that is none.
    """
    names = ["model.safetensors"]
    index = folder / f"{names[0]}.index.json"
    if not (folder / names[0]).is_file() and index.is_file():
        try:
            weight_map = json.loads(index.read_text("utf-8"))["weight_map"]
            names = list({str(name) for name in weight_map.values()})
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise InvalidArgumentError(
                f"{index} is no index of weights ({error!r}); fetch the model again"
            ) from error
    return names if all((folder / name).is_file() for name in names) else []


def _listed(folder: Path) -> Iterator[Path]:
    if not folder.is_dir():
        raise NotFoundError(f"there is no folder {folder}")
    for path in sorted(folder.iterdir()):
        if path.name in _UNLISTED:
            continue
        if path.is_symlink() or not path.is_file():
            raise InvalidArgumentError(f"{path} is not a plain file; remove it")
        if path.suffix in _PICKLES or path.suffix in _CODE:
            kind = "a pickle" if path.suffix in _PICKLES else "code"
            raise InvalidArgumentError(
                f"{path} is {kind}, which runs when it is loaded; a team holds safetensors alone. "
                "Remove the file, or save the weights with safe_serialization=True"
            )
        if path.suffix not in SUFFIXES:
            raise InvalidArgumentError(
                f"{path} is no part of a model ({', '.join(sorted(SUFFIXES))}); remove it"
            )
        yield path


def _entry(path: Path) -> FileEntry:
    return FileEntry(sha256=file_sha256(path), size_bytes=path.stat().st_size)
