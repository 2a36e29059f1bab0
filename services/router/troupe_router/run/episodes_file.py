"""The file episodes.jsonl of a job: one line per episode, each exactly once across kills and lives.

Owns offsets and rewriting. What a line holds is ``troupe.episodes.lines``'s.
"""

import hashlib
import json
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from troupe.api.records.v1 import records_pb2 as pb
from troupe.episodes.lines import viewer_line


def is_kept(episode: pb.Episode, fraction: float) -> bool:
    """Whether a training episode is among the recorded ``fraction``; evaluation always is."""
    if episode.kind == pb.ROUND_KIND_EVAL or fraction >= 1.0:
        return True
    digest = hashlib.blake2b(episode.episode_id.encode(), digest_size=4).digest()
    return int.from_bytes(digest) / 2**32 < fraction


def append_at(
    path: Path, offset: int, episodes: Sequence[pb.Episode], *, with_tokens: bool = False
) -> None:
    """Cut the file to ``offset`` bytes and append these episodes. Idempotent.

    ``with_tokens`` keeps token ids and their log probabilities where the episodes have them.
    """
    with path.open("ab") as file:
        file.truncate(offset)
        file.seek(0, os.SEEK_END)
        for episode in episodes:
            line = viewer_line(episode, with_tokens=with_tokens)
            text = json.dumps(line, ensure_ascii=False, separators=(",", ":"))
            file.write(text.encode() + b"\n")


def append_line(path: Path, text: str) -> None:
    """Append a line, whole or not at all: a part that a full disk took is cut off again."""
    size = path.stat().st_size if path.is_file() else 0
    try:
        with path.open("a", encoding="utf-8") as file:
            file.write(text)
    except OSError:
        with suppress(OSError):
            os.truncate(path, size)
        raise


def keep_lines(path: Path, keep: Callable[[dict[str, Any]], bool]) -> list[dict[str, Any]]:
    """Rewrite a JSON-lines file with the lines to keep (torn ones go); returns those."""
    kept: list[dict[str, Any]] = []
    if not path.is_file():
        return kept
    temporary = path.with_suffix(".tmp")
    num_lines = 0
    with path.open("rb") as source, temporary.open("wb") as target:
        for line in source:
            num_lines += 1
            document = _parse(line)
            if document is not None and keep(document):
                kept.append({k: v for k, v in document.items() if k != "groups"})
                target.write(line)
    if len(kept) == num_lines:
        temporary.unlink()
    else:
        temporary.replace(path)
    return kept


def _parse(line: bytes) -> dict[str, Any] | None:
    if not line.endswith(b"\n"):
        return None
    try:
        document = json.loads(line)
    except ValueError:
        return None
    return document if isinstance(document, dict) else None
