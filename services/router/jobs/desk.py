"""The front desk: accepts, plans, cancels and resumes jobs.

Owns run-folder names, idempotency and the first write of a job. Never conducts one.
"""

import asyncio
import hashlib
import json
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml
from redis.asyncio import Redis

from services.router.jobs.checks import check_runs_dir, resolve
from services.router.jobs.plan import plan
from services.router.jobs.record import JobRecord
from services.router.jobs.store import JobStore
from services.router.settings import RouterSettings
from troupe.errors import ConflictError, InvalidArgumentError, NotFoundError
from troupe.spec import Issue, JobSpec, SpecInvalidError, load_spec, parse_spec
from troupe.streams.events import EventLog
from troupe.streams.ledger import StepLedger

MAY_CHANGE = frozenset({"steps", "limits", "eval", "checkpoint"})
"""Fields of a spec that may differ when a job is resumed."""


@dataclass(frozen=True, slots=True)
class Accepted:
    """A job and whether it was made by this call."""

    record: JobRecord
    is_new: bool


class Desk:
    """What users may ask of jobs."""

    def __init__(self, settings: RouterSettings, redis: Redis, store: JobStore) -> None:
        self._settings = settings
        self._redis = redis
        self._store = store
        self._submitting = asyncio.Lock()

    async def plan(self, body: bytes) -> dict[str, Any]:
        """The plan of a dry run; raises SpecInvalidError."""
        _, parts = await asyncio.to_thread(self._check, parse_body(body))
        return plan(parts, self._settings)

    async def submit(self, body: bytes, *, key: str | None) -> Accepted:
        """Accept a job, once for each idempotency key; raises SpecInvalidError, ConflictError."""
        digest = hashlib.sha256(body).hexdigest()
        async with self._submitting:
            if key and (known := await self._store.job_of_key(key, digest)):
                earlier = await self._store.find(known)
                if earlier is not None:
                    return Accepted(earlier, is_new=False)
            spec, _ = await asyncio.to_thread(self._check, parse_body(body))
            job_id, run_dir = await asyncio.to_thread(self._make_run_dir, spec)
            if key:
                claimed = await self._store.claim_key(key, digest, job_id)
                if claimed != job_id and (earlier := await self._store.find(claimed)):
                    await asyncio.to_thread(_remove_empty, run_dir)
                    return Accepted(earlier, is_new=False)
            record = JobRecord(job_id, spec, run_dir, "queued", created_at=time.time())
            await asyncio.to_thread(write_spec, run_dir, spec)
            await self._store.create(record)
        await self._say_state(record)
        return Accepted(record, is_new=True)

    async def cancel(self, job_id: str) -> JobRecord:
        """Ask a job to end; one that has ended, or is ending, stays as it is."""
        record = await self._store.get(job_id)
        if record.is_finished or record.state == "cancelling":
            return record
        record = await self._store.transition(job_id, "cancelling", reason="cancelled by the user")
        await self._say_state(record)
        return record

    async def resume(self, job_id: str, body: bytes = b"") -> JobRecord:
        """Queue a job again from its run folder; an active job stays as it is.

        ``body`` may be empty, or the job's spec with other ``MAY_CHANGE`` fields.
        """
        record = await self._store.find(job_id)
        if record is not None and not record.is_finished:
            return record
        if record is not None and record.state == "succeeded" and not body.strip():
            return record
        run_dir = record.run_dir if record else self._run_dir(job_id)
        stored = await asyncio.to_thread(_stored_spec, run_dir, job_id)
        wanted = stored
        if body.strip():
            wanted = await asyncio.to_thread(lambda: self._check(parse_body(body))[0])
            _check_same_job(job_id, stored, wanted)
        if record is not None and record.state == "succeeded":
            raise ConflictError(f"job '{job_id}' succeeded; submit a new job instead")
        spec, _ = await asyncio.to_thread(self._check, wanted)
        await asyncio.to_thread(write_spec, run_dir, spec)
        await StepLedger(self._redis, job_id).delete()
        fresh = JobRecord(job_id, spec, run_dir, "queued", created_at=time.time(), life=2)
        if record is None:
            await self._store.create(fresh)
        else:
            await self._store.forget_notes(job_id, *await self._stale_notes(job_id))
            fresh = replace(fresh, life=record.life + 1, created_at=record.created_at)
            fresh = await self._store.reopen(fresh)
        await self._say_state(fresh)
        return fresh

    async def _stale_notes(self, job_id: str) -> list[str]:
        """Notes of an earlier life about files that the new life rewinds.

        What was measured of a step stays: its line may still have to be written.
        """
        return [n for n in await self._store.notes(job_id) if not n.startswith("play:")]

    def _check(self, spec: JobSpec) -> Any:
        check_runs_dir(self._settings.runs_dir)
        return resolve(spec)

    def _run_dir(self, job_id: str) -> Path:
        if not re.fullmatch(r"[a-z][a-z0-9_-]{0,60}", job_id):
            raise NotFoundError(f"'{job_id}' is not a job id; give the name of a run folder")
        return self._settings.runs_dir.absolute() / job_id

    def _make_run_dir(self, spec: JobSpec) -> tuple[str, Path]:
        """The first free folder `<name>-<n>`: making it is what reserves the job id."""
        runs_dir = self._settings.runs_dir.absolute()
        for number in range(1, 1_000_000):
            job_id = f"{spec.name}-{number}"
            try:
                (runs_dir / job_id).mkdir()
            except FileExistsError:
                continue
            except OSError as error:
                raise InvalidArgumentError(
                    f"the run folder {runs_dir / job_id} cannot be made: {error.strerror}"
                ) from error
            return job_id, runs_dir / job_id
        raise ConflictError(f"{runs_dir} is full of jobs called '{spec.name}'; remove some")

    async def _say_state(self, record: JobRecord) -> None:
        log = EventLog(self._redis, record.job_id, source="router")
        data = {"state": record.state, "reason": record.reason}
        await log.emit("job.state", data, event_id=f"{record.life}:{record.state}")


def parse_body(body: bytes) -> JobSpec:
    """The JobSpec in a request body (JSON or YAML); raises SpecInvalidError."""
    try:
        document = json.loads(body)
    except ValueError:
        try:
            document = yaml.safe_load(body)
        except (yaml.YAMLError, UnicodeDecodeError) as error:
            issue = Issue("", f"the body is neither JSON nor YAML: {error}")
            raise SpecInvalidError([issue], source="request body") from error
    return parse_spec(document, source="job spec")


def write_spec(run_dir: Path, spec: JobSpec) -> None:
    """Write ``spec.json`` atomically."""
    temporary = run_dir / ".spec.json.tmp"
    temporary.write_text(spec.model_dump_json(indent=2) + "\n", encoding="utf-8")
    temporary.replace(run_dir / "spec.json")


def _stored_spec(run_dir: Path, job_id: str) -> JobSpec:
    path = run_dir / "spec.json"
    if not path.is_file():
        raise NotFoundError(f"no job '{job_id}': there is no {path}; check the run folder")
    return load_spec(path)


def _check_same_job(job_id: str, stored: JobSpec, wanted: JobSpec) -> None:
    old: Mapping[str, Any] = stored.model_dump(mode="json")
    new: Mapping[str, Any] = wanted.model_dump(mode="json")
    changed = sorted(n for n in old if n not in MAY_CHANGE and old[n] != new[n])
    if changed:
        raise ConflictError(
            f"job '{job_id}' cannot be resumed with another {', '.join(changed)}; "
            f"only {', '.join(sorted(MAY_CHANGE))} may change"
        )


def _remove_empty(run_dir: Path) -> None:
    run_dir.rmdir()
