"""The users' commands: accepts, plans, cancels, pauses, resumes and deletes jobs.

Owns idempotency and the first write of a job. Never conducts one.
"""

import asyncio
import hashlib
import json
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from redis.asyncio import Redis

from troupe.clients.rest.models.jobs import PlanDocument
from troupe.durable import replace_file
from troupe.episodes.build import JobParts
from troupe.errors import ConflictError, NotFoundError, UnavailableError
from troupe.runtime.streams.events import EventLog
from troupe.runtime.streams.ledger import StepLedger
from troupe.spec import Issue, JobSpec, SpecInvalidError, parse_spec, read_yaml
from troupe.spec.resuming import check_same_job
from troupe_router.jobs.allowlist import Allowlist
from troupe_router.jobs.bundles import BundleStore, keep_bundle
from troupe_router.jobs.checks import (
    check_playable,
    check_runs_dir,
    check_trainer_gpus,
    laid_out,
    model_issues,
    resolve_here,
)
from troupe_router.jobs.discard import discard
from troupe_router.jobs.estimate import find_pace
from troupe_router.jobs.job_file import SPEC_FILE, earlier_job, is_job_id, write_job
from troupe_router.jobs.plan import plan
from troupe_router.jobs.queue import Quota, check_quota, in_use
from troupe_router.jobs.record import JobRecord
from troupe_router.jobs.reserve import is_reserved_only, reserve
from troupe_router.jobs.resume_checks import (
    before_layout,
    check_longer,
    check_steps,
    check_unchanged,
    learnt_steps,
    stored_spec,
)
from troupe_router.jobs.set_aside import has_export, set_aside
from troupe_router.jobs.state import JobState
from troupe_router.jobs.store import TRACKED_NOTE, JobStore
from troupe_router.settings import RouterSettings


@dataclass(frozen=True, slots=True)
class Accepted:
    """A job and whether it was made by this call."""

    record: JobRecord
    is_new: bool


class JobCommands:
    """What users may ask of jobs."""

    def __init__(
        self,
        settings: RouterSettings,
        redis: Redis,
        store: JobStore,
        replica_limits: Callable[[], Mapping[str, int]] = dict,
    ) -> None:
        self._settings = settings
        self._redis = redis
        self._store = store
        self._replica_limits = replica_limits
        self.bundles = BundleStore(settings)
        """Code that jobs bring along."""
        self._submitting = asyncio.Lock()
        self._keeping = asyncio.Lock()
        """Of run folders: none is emptied while a job is resumed from it."""

    @property
    def quota(self) -> Quota:
        """What jobs may take together."""
        settings = self._settings
        return Quota(settings.max_replicas, settings.most_jobs, self._replica_limits())

    async def plan(self, spec: JobSpec, *, owner: str = "") -> PlanDocument:
        """The plan of a dry run; raises SpecInvalidError."""
        _, parts = await asyncio.to_thread(self._check, spec, owner)
        check_quota(parts.spec, self.quota, owner)
        jobs = await self._store.all()
        pace = await asyncio.to_thread(find_pace, parts.spec, jobs)
        return plan(parts, self._settings, in_use=in_use(jobs), pace=pace)

    async def check_playable(self, spec: JobSpec) -> list[Issue]:
        """Models that a job of ``spec`` would lack; raises SpecInvalidError for all else."""
        return await asyncio.to_thread(self._check_playable, spec)

    async def submit(
        self, body: bytes, spec: JobSpec, *, key: str | None, owner: str = "", priority: int = 0
    ) -> Accepted:
        """Accept a job, once for each owner's idempotency key.

        Raises:
            SpecInvalidError: it cannot run; ConflictError: the key was used for another body, or
            for a job that was deleted.
        """
        digest = hashlib.sha256(body).hexdigest()
        key = f"{owner}:{key}" if key else None
        async with self._submitting:
            known = await self._store.job_of_key(key, digest) if key else None
            if known and (earlier := await self._earlier(known)):
                return Accepted(earlier, is_new=False)
            asked, parts = await asyncio.to_thread(self._check, spec, owner)
            spec = parts.spec
            check_quota(spec, self.quota, owner)
            job_id = await asyncio.to_thread(self._make_run, known, asked)
            if key and not known:
                job_id = await self._claim(key, digest, job_id)
                if earlier := await self._store.find(job_id):
                    return Accepted(earlier, is_new=False)
            record = JobRecord(
                job_id,
                spec,
                self._run_dir(job_id),
                "queued",
                created_at=time.time(),
                priority=priority,
                owner=owner,
            )
            await self._store.create(record)
        await self._emit_state(record)
        await self._emit_bundle(record)
        return Accepted(record, is_new=True)

    async def cancel(self, job_id: str) -> JobRecord:
        """Ask a job to end; one that has ended, or is ending, stays as it is."""
        record = await self._store.get(job_id)
        if record.is_finished or record.state == "cancelling":
            return record
        record = await self._store.transition(job_id, "cancelling", reason="cancelled by the user")
        await self._emit_state(record)
        return record

    async def pause(self, job_id: str) -> JobRecord:
        """Ask a job to pause; one that is paused or pausing stays as it is."""
        record = await self._store.get(job_id)
        if record.state in ("pausing", "paused"):
            return record
        if record.is_finished or record.state == "cancelling":
            raise ConflictError(f"job '{job_id}' is {record.state}; it cannot be paused")
        to: JobState = "paused" if record.state == "queued" else "pausing"
        record = await self._store.transition(job_id, to, reason="paused by the user")
        await self._emit_state(record)
        return record

    async def delete(self, job_id: str, *, files: bool) -> None:
        """Forget a job that has ended or is paused; its id is never used again.

        ``files`` empties its run folder too.

        Raises:
            UnavailableError: it is forgotten, and its run folder can't be written.
        """
        async with self._keeping:
            record = await self._store.get(job_id)
            await self._store.remove(job_id)
            await StepLedger(self._redis, job_id).delete()
            try:
                await asyncio.to_thread(_leave, record, files=files)
            except FileNotFoundError:
                return
            except OSError as error:
                raise UnavailableError(
                    f"job '{job_id}' is not listed any more, and {record.run_dir} can't be changed "
                    f"({error.strerror}); the job comes back when the router starts: free space "
                    "there, or remove the folder by hand"
                ) from error

    async def discard(self, job_id: str) -> None:
        """Empty the run folder of a job that is not listed; raises ConflictError for one that is.

        Raises OSError: nothing was removed.
        """
        async with self._keeping:
            if await self._store.find(job_id) is not None:
                raise ConflictError(f"job '{job_id}' is listed; delete it with its files")
            await asyncio.to_thread(discard, self._run_dir(job_id))

    async def resume(self, job_id: str, wanted: JobSpec | None = None) -> JobRecord:
        """Queue a job again from its run folder; one that waits or runs stays as it is.

        ``wanted`` may be the job's spec with other ``troupe.spec.resuming.MAY_CHANGE`` fields. A
        job that succeeded goes on only with more steps.

        Raises:
            ConflictError: it is ending, or it waits or runs with another spec than ``wanted``.
        """
        async with self._keeping:
            record = await self._store.find(job_id)
            if record is not None and record.state in ("pausing", "cancelling"):
                to = "paused" if record.state == "pausing" else "cancelled"
                raise ConflictError(f"job '{job_id}' is {record.state}; resume it once it is {to}")
            if record is not None and not record.is_finished and record.state != "paused":
                if wanted is not None:
                    stored, asked, _ = await self._asked(
                        record.run_dir, record, record.owner, wanted
                    )
                    check_unchanged(record, stored, asked)
                return record
            return await self._resume(job_id, record, wanted)

    async def _resume(
        self, job_id: str, record: JobRecord | None, wanted: JobSpec | None
    ) -> JobRecord:
        run_dir = record.run_dir if record else self._run_dir(job_id)
        earlier = record or await asyncio.to_thread(earlier_job, run_dir)
        owner = earlier.owner if earlier else ""
        stored, asked, parts = await self._asked(run_dir, record, owner, wanted)
        if earlier is not None and earlier.state == "succeeded":
            await asyncio.to_thread(check_longer, run_dir, asked, earlier)
        elif wanted is not None:
            await asyncio.to_thread(check_steps, run_dir, asked)
        spec = parts.spec
        check_quota(spec, self.quota, owner)
        ledger = StepLedger(self._redis, job_id)
        has_exported = asked.steps != stored.steps and await asyncio.to_thread(has_export, run_dir)
        # Where Redis was emptied there is no ledger to go on with, only the checkpoints. That of a
        # job that exported its weights may have the result, with which the new life would end.
        goes_on = record is not None and record.state == "paused" and not has_exported
        goes_on = goes_on and bool(await ledger.versions())
        if not goes_on:
            await ledger.delete()
        if has_exported:  # before the spec is written: a request that is sent again finds it to do
            await asyncio.to_thread(set_aside, run_dir, stored)
        await asyncio.to_thread(self._write, run_dir, asked)
        now = time.time()
        fresh = JobRecord(job_id, spec, run_dir, "queued", created_at=now, life=2, resumed_at=now)
        if earlier is not None:
            learnt = await asyncio.to_thread(learnt_steps, run_dir, asked)
            fresh = replace(
                fresh,
                life=earlier.life + 1,
                created_at=earlier.created_at,
                priority=earlier.priority,
                owner=earlier.owner,
                is_pinned=earlier.is_pinned,
                step=earlier.step if goes_on else learnt,
            )
        if record is None:
            await self._store.create(fresh)
        else:
            if not goes_on:
                await self._store.forget_notes(job_id, *await self._stale_notes(job_id))
            fresh = await self._store.reopen(fresh)
        await self._emit_state(fresh)
        return fresh

    async def _asked(
        self, run_dir: Path, record: JobRecord | None, owner: str, wanted: JobSpec | None
    ) -> tuple[JobSpec, JobSpec, JobParts]:
        """The stored spec of a job, ``wanted`` as one of the same job, and this as laid out now."""
        stored = await asyncio.to_thread(stored_spec, run_dir, run_dir.name)
        plain = before_layout(wanted, stored, record) if wanted is not None else stored
        asked, parts = await asyncio.to_thread(self._check, plain, owner, run_dir)
        if wanted is not None:
            await asyncio.to_thread(check_same_job, run_dir, stored, asked)
        return stored, asked, parts

    async def _stale_notes(self, job_id: str) -> list[str]:
        """Notes of an earlier life about files that the new life rewinds.

        The measurements of a step stay: its line may still have to be written. So do the trackers'
        line counts.
        """
        kept = ("play:", TRACKED_NOTE)
        return [n for n in await self._store.notes(job_id) if not n.startswith(kept)]

    async def _earlier(self, job_id: str) -> JobRecord | None:
        """The job that an idempotency key stands for; None where it never became one.

        Raises ConflictError: it was deleted.
        """
        earlier = await self._store.find(job_id)
        if earlier is None and not await asyncio.to_thread(is_reserved_only, self._run_dir(job_id)):
            raise ConflictError(
                f"the Idempotency-Key was used for job {job_id}, which was deleted; send a new key"
            )
        return earlier

    async def _claim(self, key: str, digest: str, job_id: str) -> str:
        """The job that ``key`` stands for now: ``job_id``, or one that another router has made."""
        claimed = await self._store.claim_key(key, digest, job_id)
        if claimed != job_id:
            await asyncio.to_thread(shutil.rmtree, self._run_dir(job_id), ignore_errors=True)
        return claimed

    def _make_run(self, known: str | None, spec: JobSpec) -> str:
        """Write the run folder of a new job, and return its id; ``known``: one that is reserved.

        Whatever fails after this, a claimed key finds the spec, and the next request goes on.
        """
        if known:
            self._write(self._run_dir(known), spec)
            return known
        job_id, run_dir = reserve(self._settings.runs_dir.absolute(), spec.name)
        try:
            self._write(run_dir, spec)
        except Exception:
            shutil.rmtree(run_dir, ignore_errors=True)
            raise
        return job_id

    def _write(self, run_dir: Path, spec: JobSpec) -> None:
        try:
            if bundle := self.bundles.checked(spec, run_dir):
                keep_bundle(run_dir, bundle)
            replace_file(run_dir / SPEC_FILE, spec.model_dump_json(indent=2) + "\n")
        except OSError as error:
            raise UnavailableError(
                f"the run folder {run_dir} can't be written ({error.strerror}); free space there, "
                "and ask again"
            ) from error

    def _check(
        self, spec: JobSpec, owner: str, run_dir: Path | None = None
    ) -> tuple[JobSpec, JobParts]:
        """The resolved spec as asked, which run folders keep, and the job as laid out here now."""
        check_runs_dir(self._settings.runs_dir)
        self.bundles.checked(spec, run_dir)
        spec, parts = resolve_here(spec, self._settings)
        parts = laid_out(parts, self._settings, max_replicas=self.quota.replicas_of(owner))
        check_trainer_gpus(parts, self._settings.trainer_gpus)
        return spec, parts

    def _check_playable(self, spec: JobSpec) -> list[Issue]:
        check_runs_dir(self._settings.runs_dir)
        self.bundles.checked(spec)
        allowed = Allowlist.from_settings(self._settings)
        check_playable(spec, allowed)
        return model_issues(spec, allowed)

    def _run_dir(self, job_id: str) -> Path:
        if not is_job_id(job_id):
            raise NotFoundError(f"'{job_id}' is not a job id; give the name of a run folder")
        return self._settings.runs_dir.absolute() / job_id

    async def _emit_bundle(self, record: JobRecord) -> None:
        """Say in the job's events whose code runs in it."""
        if record.spec.bundle is not None:
            log = EventLog(self._redis, record.job_id, source="router")
            data = {"digest": record.spec.bundle.digest, "owner": record.owner}
            await log.emit("job.bundle", data, event_id=f"{record.life}:bundle")

    async def _emit_state(self, record: JobRecord) -> None:
        log = EventLog(self._redis, record.job_id, source="router")
        data = {"state": record.state, "reason": record.reason}
        await log.emit("job.state", data, event_id=f"{record.life}:{record.state}")


def parse_body(body: bytes, *, media_type: str = "application/json") -> JobSpec:
    """The JobSpec in a request body: JSON, or YAML when its media type says so.

    Raises SpecInvalidError.
    """
    if "yaml" in media_type:
        document = read_yaml(body, source="request body")
    else:
        try:
            document = json.loads(body)
        except (ValueError, RecursionError) as error:
            why = str(error) or type(error).__name__
            text = (
                f"the body is not JSON: {why}; send a job spec as JSON (or YAML with Content-Type: "
                "application/yaml)"
            )
            raise SpecInvalidError([Issue("", text)], source="request body") from error
    if not isinstance(document, dict):
        kind = type(document).__name__
        text = f"the body is a {kind}, not an object with the fields of a job spec"
        raise SpecInvalidError([Issue("", text)], source="request body")
    return parse_spec(document, source="job spec")


def _leave(record: JobRecord, *, files: bool) -> None:
    """Leave a deleted job's run folder empty, or with a note that the job was deleted."""
    if files:
        discard(record.run_dir)
    else:
        write_job(record, {}, deleted_at=time.time())
