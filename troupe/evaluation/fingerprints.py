"""Detects changed policies and tasks by a digest of the weights or the file behind each name.

Reads local files; the weights of a server and the revision of a hub id are not checked.
"""

import hashlib
import os
from pathlib import Path

from troupe.evaluation.refs import WeightsRef
from troupe.evaluation.teams import Team

_PROBES = 16
_PROBE_BYTES = 65536
_SUFFIXES = (".safetensors", ".bin", ".json", ".jinja", ".txt", ".model")


def fingerprint(team: Team, *, computed_by: str = "") -> str:
    """A digest that changes when any seat's policy does.

    ``computed_by`` names the engine and the number format of weights where they are not the usual
    ones: other figures come from others.
    """
    digest = hashlib.blake2b(digest_size=16)
    for agent in sorted(team.seats):
        ref = team.seats[agent]
        digest.update(f"{agent}\x1f{ref}\x1e".encode())
        if isinstance(ref, WeightsRef):
            if ref.chat_template_kwargs or computed_by:
                digest.update(f"{ref.chat_template_kwargs}\x1f{computed_by}\x1e".encode())
            for folder in filter(None, (ref.model, ref.adapter)):
                _add_folder(digest, Path(folder))
    return digest.hexdigest()


def code_digest(task: str) -> str:
    """Of the file of a task ``file.py:Class``; "" for any other. What it imports is not read."""
    path = Path(task.rpartition(":")[0])
    if path.suffix != ".py" or not path.is_file():
        return ""
    return hashlib.blake2b(path.read_bytes(), digest_size=16).hexdigest()


def _add_folder(digest: "hashlib.blake2b", folder: Path) -> None:
    if not folder.is_dir():
        return
    for path in sorted(folder.iterdir()):
        if path.is_file() and path.suffix in _SUFFIXES:
            digest.update(f"{path.name}\x1f{path.stat().st_size}\x1e".encode())
            _add_file(digest, path)


def _add_file(digest: "hashlib.blake2b", path: Path) -> None:
    """Hash evenly spaced blocks of a large file: training changes every weight, so some differ."""
    size = path.stat().st_size
    with path.open("rb") as file:
        if size <= _PROBES * _PROBE_BYTES:
            digest.update(file.read())
            return
        for probe in range(_PROBES):
            file.seek((size - _PROBE_BYTES) * probe // (_PROBES - 1), os.SEEK_SET)
            digest.update(file.read(_PROBE_BYTES))
