"""A job's record in its run folder: ``job.json`` beside ``spec.json``. Redis may be lost; it stays.

Owns the two files, their limits and their faults. A run folder is also written by trainers and by
users, so nothing of it is believed before it is checked, and no link is followed.
"""

import json
import os
import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from troupe.clients.rest.models.jobs import JobState
from troupe.durable import replace_file
from troupe.errors import ConflictError, NotFoundError
from troupe.spec import SpecInvalidError, parse_spec
from troupe_router.jobs.record import JobRecord
from troupe_router.jobs.state import FINISHED

JOB_FILE, SPEC_FILE = "job.json", "spec.json"
FILE_VERSION = 1
"""Version of ``job.json`` that this code writes, and the newest that it reads."""
MAX_JOB_BYTES, MAX_SPEC_BYTES = 64 << 10, 4 << 20
_MAX_REASON = 8000
_JOB_ID = re.compile(r"[a-z][a-z0-9_-]{0,60}")
_NEVER = Field(default=0.0, ge=0, lt=2**53, allow_inf_nan=False)
_Instant = Annotated[float, _NEVER]


class BrokenFolderError(ConflictError):
    """A run folder whose record can't be used; the message says why."""


class JobHead(BaseModel):
    """What ``job.json`` holds: a JobRecord without its spec and its folder. Instants as there.

    ``deleted_at``: the job was deleted then, and is not listed; 0: it was not.
    ``tracked``: lines that each tracker was given, by the tracker's place.
    """

    model_config = ConfigDict(extra="ignore", frozen=True, strict=True)

    version: Annotated[int, Field(ge=1)]
    job_id: Annotated[str, Field(max_length=61)]
    state: JobState
    created_at: Annotated[float, Field(gt=0, lt=2**53, allow_inf_nan=False)]
    started_at: _Instant = 0.0
    ended_at: _Instant = 0.0
    reason: Annotated[str, Field(max_length=_MAX_REASON)] = ""
    life: Annotated[int, Field(ge=1, lt=2**31)] = 1
    step: Annotated[int, Field(ge=0, lt=2**31)] = 0
    priority: Annotated[int, Field(ge=-100, le=100)] = 0
    owner: Annotated[str, Field(max_length=200)] = ""
    is_pinned: bool = False
    deleted_at: _Instant = 0.0
    tracked: Annotated[dict[str, int], Field(max_length=8)] = {}


@dataclass(frozen=True, slots=True)
class StoredJob:
    """A job as its run folder has it. ``is_recorded``: by ``job.json``, not guessed without it."""

    head: JobHead
    is_recorded: bool = True


def is_job_id(name: str) -> bool:
    """Whether ``name`` has the form of a job's id, which is also that of a run folder's name."""
    return _JOB_ID.fullmatch(name) is not None


def write_job(record: JobRecord, tracked: Mapping[str, int], *, deleted_at: float = 0.0) -> None:
    """Write ``job.json``, durably; raises OSError, also where the run folder is gone."""
    if not record.run_dir.is_dir():
        raise FileNotFoundError(f"there is no {record.run_dir}")
    head = JobHead(
        version=FILE_VERSION,
        job_id=record.job_id,
        state=record.state,
        created_at=record.created_at,
        started_at=record.started_at,
        ended_at=record.ended_at,
        reason=record.reason[:_MAX_REASON],
        life=record.life,
        step=record.step,
        priority=record.priority,
        owner=record.owner,
        is_pinned=record.is_pinned,
        deleted_at=deleted_at,
        tracked=dict(tracked),
    )
    replace_file(record.run_dir / JOB_FILE, head.model_dump_json(indent=1) + "\n")


def read_job(run_dir: Path) -> StoredJob | None:
    """The job of a run folder, without its spec; None where there is no job.

    A folder of an earlier version has no ``job.json``: its state and instants are then those of
    ``summary.json`` and of the files.

    Raises:
        BrokenFolderError: there is a record, and it can't be used.
    """
    text = read_bounded(run_dir, JOB_FILE, MAX_JOB_BYTES)
    if text is None:
        return _guessed(run_dir)
    try:
        head = JobHead.model_validate_json(text)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = "/".join(str(part) for part in first["loc"])
        raise BrokenFolderError(f"{JOB_FILE} is not valid: {where}: {first['msg']}") from error
    if head.version > FILE_VERSION:
        raise BrokenFolderError(
            f"{JOB_FILE} has version {head.version}, and this router reads up to {FILE_VERSION}: "
            "a newer version of Troupe wrote it"
        )
    if head.job_id != run_dir.name:
        raise BrokenFolderError(
            f"{JOB_FILE} is of job '{head.job_id}': the folder was copied or renamed; give it that "
            "name again"
        )
    return StoredJob(head)


def with_spec(run_dir: Path, head: JobHead) -> JobRecord:
    """The whole record, for a folder of the name ``run_dir``; raises BrokenFolderError."""
    text = read_bounded(run_dir, SPEC_FILE, MAX_SPEC_BYTES)
    if text is None:
        raise BrokenFolderError(f"there is no {SPEC_FILE}")
    try:
        spec = parse_spec(json.loads(text), source=SPEC_FILE)
    except SpecInvalidError as error:
        raise BrokenFolderError(error.message) from error
    except (ValueError, RecursionError) as error:
        raise BrokenFolderError(f"{SPEC_FILE} is not JSON") from error
    return JobRecord(
        job_id=head.job_id,
        spec=spec,
        run_dir=run_dir,
        state=head.state,
        created_at=head.created_at,
        started_at=head.started_at,
        ended_at=head.ended_at,
        reason=head.reason,
        life=head.life,
        step=head.step,
        priority=head.priority,
        owner=head.owner,
        is_pinned=head.is_pinned,
    )


def earlier_job(run_dir: Path) -> JobHead | None:
    """The job of a folder that is to be resumed, whose record may be gone.

    Raises:
        NotFoundError: the folder is broken, so nothing can be resumed from it; or the job was
        deleted.
    """
    try:
        stored = read_job(run_dir)
    except BrokenFolderError as error:
        raise NotFoundError(f"job '{run_dir.name}' can't be resumed: {error.message}") from error
    if stored is not None and stored.head.deleted_at > 0:
        raise NotFoundError(
            f"job '{run_dir.name}' was deleted; submit its {SPEC_FILE} as a new job instead"
        )
    return stored.head if stored else None


def _guessed(run_dir: Path) -> StoredJob | None:
    """The job of a folder without ``job.json``; None when it has no spec either."""
    try:
        made_at = (run_dir / SPEC_FILE).lstat().st_mtime
    except OSError:
        return None
    summary = _summary(run_dir)
    state = summary.get("state")
    has_ended = state in FINISHED
    ended_at = (run_dir / "summary.json").lstat().st_mtime if has_ended else 0.0
    document = {
        "version": FILE_VERSION,
        "job_id": run_dir.name,
        "state": state if has_ended else "paused",
        "created_at": min(made_at, ended_at) if has_ended else made_at,
        "ended_at": ended_at,
        "reason": str(summary.get("reason", ""))[:_MAX_REASON],
        "life": summary.get("lives", 1),
        "step": summary.get("steps", 0),
    }
    try:
        return StoredJob(JobHead.model_validate(document), is_recorded=False)
    except ValidationError as error:
        raise BrokenFolderError("there is no job.json, and summary.json is not valid") from error


def _summary(run_dir: Path) -> Mapping[str, Any]:
    text = read_bounded(run_dir, "summary.json", MAX_SPEC_BYTES)
    try:
        document = json.loads(text) if text else {}
    except (ValueError, RecursionError) as error:
        raise BrokenFolderError("there is no job.json, and summary.json is not JSON") from error
    return document if isinstance(document, dict) else {}


def read_bounded(run_dir: Path, name: str, limit: int) -> bytes | None:
    """The file, None where there is none; raises BrokenFolderError for anything but a small file.

    A link, or a pipe that nobody writes, is not opened.
    """
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        with open(run_dir / name, "rb", opener=lambda path, _: os.open(path, flags)) as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise BrokenFolderError(f"{name} is not a plain file")
            if status.st_size > limit:
                raise BrokenFolderError(
                    f"{name} has {status.st_size} bytes, and up to {limit} are read"
                )
            return file.read(limit)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise BrokenFolderError(f"{name} can't be read ({error.strerror})") from error
