"""The folder of one evaluation: its plan, one line for each played sample, and their images.

Makes a killed evaluation resumable: lines are appended whole, a torn last line is cut off, and a
folder holds samples of one plan and of unchanged policies only.
"""

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any, Self

from troupe.api.records.v1 import records_pb2 as pb
from troupe.durable import make_folder, replace_file, sync
from troupe.episodes.images import keep_images
from troupe.episodes.lines import Line
from troupe.errors import ConflictError, InvalidArgumentError, JobFailedError
from troupe.evaluation.plan import EvalPlan

EPISODES = "episodes.jsonl"
PLAN = "plan.json"
_LOCK = ".lock"


class EvaluationFolder:
    """An evaluation's folder, locked while it is open.

    ``policies`` maps each label to the fingerprint of its policy when it was played.
    """

    def __init__(self, folder: Path, plan: EvalPlan, policies: Mapping[str, str]) -> None:
        self.folder = folder
        self._plan = plan
        self._policies = dict(policies)
        self._file: IO[bytes] | None = None
        self._lock: IO[bytes] | None = None
        self._created: list[Path] = []

    def __enter__(self) -> Self:
        self._open_folder()
        try:
            self._check_plan()
            path = self.folder / EPISODES
            _cut_torn_line(path)
            self._file = path.open("ab", buffering=0)
            sync(self.folder)
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            self._remove_if_empty()
        self._close()

    def _close(self) -> None:
        for file in (self._file, self._lock):
            if file is not None:
                file.close()

    def _remove_if_empty(self) -> None:
        """Remove the folder of an evaluation that failed before its first sample."""
        if (self.folder / EPISODES).stat().st_size or (self.folder / "episodes").exists():
            return  # with images that a first line would have named, the same command goes on
        for name in (EPISODES, PLAN, _LOCK):
            (self.folder / name).unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # another program wrote a file there
            for folder in self._created:
                folder.rmdir()

    def append(self, line: Line) -> None:
        """Add one sample with one write, so that a kill leaves the whole line or none of it."""
        assert self._file is not None
        text = json.dumps(line, ensure_ascii=False, separators=(",", ":")) + "\n"
        data = text.encode()
        try:
            num_written = self._file.write(data)
        except OSError as error:
            raise self._unwritable(str(error.strerror)) from error
        if num_written != len(data):
            raise self._unwritable("it accepted only part of a line")

    def keep_images(self, episode: pb.Episode) -> None:
        """Keep the images that a sample's line names, before the line."""
        try:
            keep_images(self.folder, [episode])
        except OSError as error:
            raise self._unwritable(str(error.strerror or error)) from error

    def lines(self) -> Iterator[Line]:
        """Every line so far, in order of play. A retried sample has several lines."""
        with (self.folder / EPISODES).open("rb") as file:
            for number, text in enumerate(file, 1):
                try:
                    yield json.loads(text)
                except ValueError as error:
                    raise InvalidArgumentError(
                        f"line {number} of {self.folder / EPISODES} is not JSON ({error}); remove "
                        "it, or give another folder with --out"
                    ) from error

    def sync(self) -> None:
        """Flush everything to disk."""
        assert self._file is not None
        os.fsync(self._file.fileno())

    def _unwritable(self, why: str) -> JobFailedError:
        return JobFailedError(
            f"{self.folder / EPISODES} can't be written ({why}); make room and give the same "
            "command again, it goes on from the last whole line"
        )

    def _open_folder(self) -> None:
        try:
            self._created = [p for p in (self.folder, *self.folder.parents) if not p.exists()]
            make_folder(self.folder)
            self._lock = (self.folder / _LOCK).open("wb")
        except OSError as error:
            raise InvalidArgumentError(
                f"folder {self.folder} can't be written ({error.strerror}); choose another with "
                "--out"
            ) from error
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self._lock.close()
            raise ConflictError(
                f"another evaluation is writing to {self.folder}; wait for it, or choose another "
                "folder with --out"
            ) from error

    def _check_plan(self) -> None:
        path = self.folder / PLAN
        fingerprints: dict[str, str] = {}
        if path.is_file():
            recorded = _read_plan(path)
            _refuse_other_settings(path, recorded["settings"], self._plan.fixed())
            fingerprints = recorded["policies"]
            for label, fingerprint in self._policies.items():
                if fingerprints.get(label, fingerprint) != fingerprint:
                    raise ConflictError(
                        f"{self.folder} holds samples of policy '{label}' with other weights or "
                        "another server; choose another folder with --out"
                    )
        elif any(p.name != _LOCK for p in self.folder.iterdir()):
            raise ConflictError(
                f"{self.folder} holds other files and no {PLAN}; choose an empty folder with --out"
            )
        document = {
            "digest": self._plan.digest,
            "settings": self._plan.fixed(),
            "policies": {**fingerprints, **self._policies},
        }
        replace_file(path, json.dumps(document, indent=2) + "\n")


def _read_plan(path: Path) -> dict[str, Any]:
    try:
        document = json.loads(path.read_text("utf-8"))
        return {"settings": dict(document["settings"]), "policies": dict(document["policies"])}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConflictError(
            f"{path} is not an evaluation's plan ({error!r}); choose another folder with --out"
        ) from error


def _refuse_other_settings(path: Path, old: dict[str, Any], new: dict[str, Any]) -> None:
    differing = [
        f"{name} was {json.dumps(old.get(name))} and is {json.dumps(new.get(name))}"
        for name in sorted({*old, *new})
        if old.get(name) != new.get(name)
    ]
    if differing:
        raise ConflictError(
            f"{path.parent} holds an evaluation with other settings: {'; '.join(differing)}. Give "
            "the same settings to go on with it, or another folder with --out"
        )


def _cut_torn_line(path: Path) -> None:
    """Cut what follows the last newline: a write that a kill interrupted left no newline."""
    if not path.is_file():
        return
    with path.open("r+b") as file:
        end = file.seek(0, os.SEEK_END)
        position = end
        while position > 0:
            start = max(0, position - 65536)
            file.seek(start)
            newline = file.read(position - start).rfind(b"\n")
            if newline >= 0:
                position = start + newline + 1
                break
            position = start
        if position < end:
            file.truncate(position)
