"""A record of a job as JSON lines (episodes.jsonl, metrics.jsonl) that knows what it must hold.

Beside it stands ``<name>.digests.jsonl``: of each part (a round's episodes, a step's line) how long
it is and its digest. ``append`` returns when both are synced, the record first. ``restore``
compares the two: what was cut, altered or lost since is marked in the digests and never filled in.
Owns both files of one record; one process writes them at a time, from any of its threads.
"""

import hashlib
import io
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from threading import RLock
from typing import Any, BinaryIO

from troupe.durable import append, cut, replace_file, replacing
from troupe_router.run.record_lines import (
    is_part_name,
    open_record,
    parse_line,
    part_name,
    read_lines,
)

_CHUNK = 1 << 20

Span = tuple[int, int]
"""Where some lines of the record begin and end, in bytes."""


@dataclass(frozen=True, slots=True)
class RecordPart:
    """One part of a record. Example: ``RecordPart("train-00003", 5210, 6, "9f86d0...")``.

    ``size`` is in bytes; ``digest`` is BLAKE2b-256 of them, in hex; ``loss`` says what the part
    lacks, "" where it is whole.
    """

    name: str
    size: int
    num_lines: int
    digest: str
    loss: str = ""


class _Lines:
    """Lines of one part, in the order in which they are added."""

    def __init__(self) -> None:
        self.spans: list[Span] = []
        self._num = 0
        self._hash = hashlib.blake2b(digest_size=32)

    def add(self, start: int, line: bytes) -> None:
        begin = self.spans.pop()[0] if self.spans and self.spans[-1][1] == start else start
        self.spans.append((begin, start + len(line)))
        self._num += 1
        self._hash.update(line)

    def part(self, name: str) -> RecordPart:
        size = sum(end - start for start, end in self.spans)
        return RecordPart(name, size, self._num, self._hash.hexdigest())


class RecordFile:
    """One record of a run folder. A part is named as a round is, by its lines' kind and step."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.digests = path.with_suffix(f".digests{path.suffix}")
        self._parts: dict[str, RecordPart] = {}
        self._digests_size = 0
        self._is_restored = False
        self._changing = RLock()

    @property
    def parts(self) -> Mapping[str, RecordPart]:
        """Every part that the record holds or has lost, by name, in the file's order."""
        return self._parts

    def restore(
        self,
        keep: Callable[[str], bool] = lambda _: True,
        *,
        is_pending: Callable[[str], bool] = lambda _: False,
    ) -> bool:
        """Compare the file with its digests; whether there were digests.

        Keeps the parts that ``keep`` names. Whole lines that no digest covers were written by an
        older version and stay, but those of a part that ``is_pending`` go: it is appended anew.
        """
        with self._changing:
            return self._restore(keep, is_pending)

    def _restore(self, keep: Callable[[str], bool], is_pending: Callable[[str], bool]) -> bool:
        noted, digests_size = _read_digests(self.digests)
        had_digests = digests_size is not None
        with open_record(self.path) or io.BytesIO() as file:
            stored = self._compare(file, list(noted.values()))
            kept = {
                name: (part, spans)
                for name, (part, spans) in stored.items()
                if keep(name) and (name in noted or not is_pending(name))
            }
            self._keep_spans(file, [span for _, spans in kept.values() for span in spans])
        self._parts = {name: part for name, (part, _) in kept.items()}
        self._digests_size = sum(len(_digest_line(part)) for part in noted.values())
        if self._parts != noted or digests_size != self._digests_size:
            self._write_digests()
        self._is_restored = True
        return had_digests

    def append(self, name: str, lines: Iterable[bytes]) -> None:
        """Append a part; one that is there is not appended again.

        Raises:
            OSError: the disk is full or failing; the record is as before.
            FileChangedError: a file is not as this object left it.
        """
        with self._changing:
            self._append(name, lines)

    def _append(self, name: str, lines: Iterable[bytes]) -> None:
        if not self._is_restored:
            self.restore(is_pending=lambda other: other == name)
        if name in self._parts:
            return
        part, data = _part_of(name, lines)
        text = _digest_line(part)
        self._is_restored = False  # until both files have it
        if data:
            append(self.path, sum(part.size for part in self._parts.values()), data)
        append(self.digests, self._digests_size, text)
        self._parts[name] = part
        self._digests_size += len(text)
        self._is_restored = True

    def rewrite(self, parts: Mapping[str, Iterable[bytes]], losses: Mapping[str, str]) -> None:
        """Replace the record by these parts. ``losses`` says by name which lack something."""
        made = {name: _part_of(name, lines) for name, lines in parts.items()}
        made |= {name: _part_of(name, ()) for name in losses if name not in made}
        with self._changing:
            replace_file(self.path, b"".join(data for _, data in made.values()))
            self._parts = {
                name: replace(part, loss=losses.get(name, "")) for name, (part, _) in made.items()
            }
            self._write_digests()

    def mark_lost(self, names: Sequence[str]) -> None:
        """Note that parts which were written are not there any more."""
        if not names:
            return
        with self._changing:
            for name in names:
                lost = replace(_Lines().part(name), loss="all of its lines are missing")
                self._parts[name] = lost
            self._write_digests()

    def look(self) -> None:
        """Take the parts from the digests alone, for a reader: the file is not compared."""
        with self._changing:
            self._parts, _ = _read_digests(self.digests)

    def lines(self) -> list[tuple[bytes, dict[str, Any]]]:
        """Every line of the record, and what it says."""
        with open_record(self.path) or io.BytesIO() as file:
            each = [(line, parse_line(line)) for _, line in read_lines(file)]
        return [(line, document) for line, document in each if document]

    def _compare(
        self, file: BinaryIO, noted: list[RecordPart]
    ) -> dict[str, tuple[RecordPart, list[Span]]]:
        """What the file has of each part: by position while all is as noted, then by line."""
        stored: dict[str, tuple[RecordPart, list[Span]]] = {}
        place = 0
        while noted and _digest_at(file, place, noted[0].size) == noted[0].digest:
            part = noted.pop(0)
            stored[part.name] = part, [(place, place + part.size)]
            place += part.size
        rest = {part.name: _Lines() for part in noted}
        file.seek(place)
        for start, line in read_lines(file):
            document = parse_line(line)
            name = part_name(document) if document else ""
            if name and name not in stored:
                rest.setdefault(name, _Lines()).add(start, line)
        before = {part.name: part for part in noted}
        for name, lines in rest.items():
            part = _with_loss(lines.part(name), before.get(name))
            stored[name] = part, lines.spans
        return stored

    def _keep_spans(self, file: BinaryIO, spans: list[Span]) -> None:
        """Make the record hold these alone; the rest is cut off where it is all at the end."""
        size = file.seek(0, io.SEEK_END)
        ends = [0, *(end for _, end in spans)]
        if all(start == end for (start, _), end in zip(spans, ends, strict=False)):
            if ends[-1] < size:
                cut(self.path, ends[-1])
            return
        with replacing(self.path) as target:
            for start, end in spans:
                file.seek(start)
                for at in range(start, end, _CHUNK):
                    target.write(file.read(min(_CHUNK, end - at)))

    def _write_digests(self) -> None:
        data = b"".join(map(_digest_line, self._parts.values()))
        replace_file(self.digests, data)
        self._digests_size = len(data)


def _part_of(name: str, lines: Iterable[bytes]) -> tuple[RecordPart, bytes]:
    gathered, data = _Lines(), bytearray()
    for line in lines:
        gathered.add(len(data), line)
        data += line
    return gathered.part(name), bytes(data)


def _with_loss(stored: RecordPart, noted: RecordPart | None) -> RecordPart:
    """``stored`` with what it lacks of what was ``noted``; nothing is known without a note."""
    if noted is None or stored.digest == noted.digest:
        return replace(stored, loss=noted.loss if noted else "")
    if stored.num_lines < noted.num_lines:
        missing = noted.num_lines - stored.num_lines
        return replace(stored, loss=f"{missing} of {noted.num_lines} lines are missing")
    return replace(stored, loss="its lines are not those that were written")


def _digest_at(file: BinaryIO, place: int, size: int) -> str:
    """Digest of ``size`` bytes from ``place`` on, or of those that there are."""
    digest = hashlib.blake2b(digest_size=32)
    file.seek(place)
    while size > 0 and (chunk := file.read(min(_CHUNK, size))):
        digest.update(chunk)
        size -= len(chunk)
    return digest.hexdigest()


def _digest_line(part: RecordPart) -> bytes:
    return json.dumps(asdict(part)).encode() + b"\n"


def _read_digests(path: Path) -> tuple[dict[str, RecordPart], int | None]:
    """The parts by name, and the file's size; None where there is no file. Garbage is left out."""
    parts: dict[str, RecordPart] = {}
    file = open_record(path)
    if file is None:
        return parts, None
    with file:
        for _, line in read_lines(file):
            if part := _noted(parse_line(line) or {}):
                parts[part.name] = part
        return parts, file.seek(0, io.SEEK_END)


def _noted(document: Mapping[str, Any]) -> RecordPart | None:
    """The part that a line of digests describes; None where it describes none."""
    counts = (document.get("size"), document.get("num_lines"))
    words = (document.get("digest"), document.get("loss", ""))
    is_valid = (
        is_part_name(document.get("name"))
        and all(type(count) is int and count >= 0 for count in counts)
        and all(isinstance(word, str) for word in words)
    )
    try:
        return RecordPart(**document) if is_valid else None
    except TypeError:
        return None
