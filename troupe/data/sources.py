"""Finds the files of a published data set: in a local copy, or on the Hugging Face hub."""

import hashlib
import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from troupe.data.dataset import Dataset
from troupe.data.rows import format_of, is_saved_folder
from troupe.errors import InvalidArgumentError, NotFoundError, UnavailableError
from troupe.tasks.family import Split

HUB = "hub"
CHUNK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Source:
    """Local path of the published files, and their hub revision, if known."""

    path: Path
    revision: str | None = None


def locate(dataset: Dataset, source: str, splits: Sequence[Split], revision: str | None) -> Source:
    """The local copy at ``source``, or a download if ``source`` is ``hub``."""
    if source != HUB:
        if revision is not None:
            raise InvalidArgumentError(
                f"--revision is of the hub's repository, and --source {source} is a local copy; "
                f"leave --revision out, or give --source {HUB}"
            )
        path = Path(source)
        if not path.exists():
            raise NotFoundError(
                f"{path} does not exist; give a file or folder of {dataset.title}, or '{HUB}'"
            )
        return Source(path)
    return _download(dataset, splits, revision)


def files_of(dataset: Dataset, source: Path, split: Split) -> list[Path]:
    """Files (or saved folders) of ``split`` under ``source``, in order of name; may be empty.

    A single file, or a saved folder, is returned as it is: the caller knows its split.
    """
    if source.is_file() or is_saved_folder(source):
        return [source]
    files = {
        path
        for pattern in dataset.splits[split]
        for path in source.glob(pattern)
        if path.is_file() and format_of(path)
    }
    files |= {path for path in (source / split, source / "data" / split) if is_saved_folder(path)}
    return sorted(files)


def is_one_split(source: Path) -> bool:
    """Whether ``source`` is a file or a saved folder, which holds one split."""
    return source.is_file() or is_saved_folder(source)


def digest_of(path: Path) -> str:
    """SHA-256 of a file, or of the data files of a folder; hexadecimal."""
    digest = hashlib.sha256()
    files = [path] if path.is_file() else sorted(p for p in path.rglob("*") if p.is_file())
    for file in files:
        with file.open("rb") as data:
            while chunk := data.read(CHUNK_BYTES):
                digest.update(chunk)
    return digest.hexdigest()


def _download(dataset: Dataset, splits: Sequence[Split], revision: str | None) -> Source:
    try:
        hub = importlib.import_module("huggingface_hub")
        errors = importlib.import_module("huggingface_hub.errors")
    except ImportError as error:
        raise InvalidArgumentError(
            "downloading needs huggingface_hub, which is not installed: pip install 'troupe[data]'"
        ) from error
    patterns = [pattern for split in splits for pattern in dataset.splits[split]]
    try:
        folder = hub.snapshot_download(
            dataset.hub_id,
            repo_type="dataset",
            revision=revision,
            allow_patterns=patterns,
            etag_timeout=10,
        )
    except (OSError, ValueError, *_transport_errors(errors.HfHubHTTPError)) as error:
        raise UnavailableError(
            f"{dataset.hub_id} could not be downloaded from the hub: {_first_line(error)}; get its "
            f"files ({', '.join(patterns)}) where there is a network and give --source <folder>"
        ) from error
    return Source(Path(folder), revision=Path(folder).name)


def _transport_errors(http_error: type[Exception]) -> list[type[Exception]]:
    """What the hub's HTTP library raises; which library that is differs between its versions."""
    return [base for base in http_error.__bases__ if issubclass(base, Exception)]


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0][:200] if lines else type(error).__name__
