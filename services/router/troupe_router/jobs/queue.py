"""Which queued jobs start now: priorities, and quotas on replicas and jobs. Pure.

Order: higher priority first, then the older. A job that does not fit blocks those behind it, so
small jobs never starve a large one; a job that only its owner's limit blocks is passed.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from troupe.spec import Issue, JobSpec, SpecInvalidError
from troupe.spec.pools import num_replicas
from troupe_router.jobs.record import JobRecord
from troupe_router.jobs.state import HOLDING


@dataclass(frozen=True, slots=True)
class Quota:
    """Limits; 0: none. ``by_owner`` is replicas of one owner's jobs."""

    max_replicas: int = 0
    max_jobs: int = 0
    by_owner: Mapping[str, int] = field(default_factory=dict[str, int])

    def replicas_of(self, owner: str) -> int | None:
        """The most that a job of ``owner`` may have; None: any number."""
        limits = [limit for limit in (self.max_replicas, self.by_owner.get(owner, 0)) if limit]
        return min(limits, default=None)


@dataclass(frozen=True, slots=True)
class Place:
    """A queued job and why it does not start yet (empty: it starts now)."""

    job: JobRecord
    waits_for: str


def places(jobs: Iterable[JobRecord], quota: Quota) -> list[Place]:
    """Every queued job among ``jobs``, in the order in which they start."""
    all_jobs = list(jobs)
    holding = [job for job in all_jobs if job.state in HOLDING]
    queued = sorted(
        (job for job in all_jobs if job.state == "queued"),
        key=lambda job: (-job.priority, job.created_at, job.job_id),
    )
    queue: list[Place] = []
    blocked_by: JobRecord | None = None
    for job in queued:
        owner_reason = _owner_reason(job, holding, quota)
        reason = _reason(job, holding, quota)
        if blocked_by is not None:
            queue.append(Place(job, f"job {blocked_by.job_id}, which is before it in the queue"))
        elif owner_reason or reason:
            queue.append(Place(job, owner_reason or reason))
            blocked_by = job if reason and not owner_reason else None
        else:
            queue.append(Place(job, ""))
            holding.append(job)
    return queue


def in_use(jobs: Iterable[JobRecord]) -> int:
    """Replicas that jobs at work hold."""
    return sum(job.replicas for job in jobs if job.state in HOLDING)


def check_quota(spec: JobSpec, quota: Quota, owner: str) -> None:
    """Raises SpecInvalidError when ``spec`` could never start."""
    wanted = num_replicas(spec)
    limits = [
        (quota.max_replicas, "this router's quota (TROUPE_ROUTER_MAX_REPLICAS)"),
        (quota.by_owner.get(owner, 0), f"the quota of the API key '{owner}'"),
    ]
    for limit, name in limits:
        if limit and wanted > limit:
            text = f"the job asks for {wanted} replicas, more than {name} of {limit} allows"
            raise SpecInvalidError([Issue(_most_asked(spec), text)])


def _most_asked(spec: JobSpec) -> str:
    """The pointer of the field that asks for most replicas."""
    asked: dict[str, int] = {}
    for name, policy in spec.policies.items():
        asked[f"/policies/{name}/replicas"] = policy.replicas
        asked[f"/policies/{name}/teacher_replicas"] = policy.teacher_replicas or 0
    return max(asked, key=lambda pointer: asked[pointer])


def _reason(job: JobRecord, holding: Sequence[JobRecord], quota: Quota) -> str:
    if quota.max_jobs and len(holding) >= quota.max_jobs:
        return f"one of {len(holding)} jobs at work to end ({_names(holding)})"
    held = sum(other.replicas for other in holding)
    if quota.max_replicas and held + job.replicas > quota.max_replicas:
        return (
            f"{job.replicas} replicas; {held} of {quota.max_replicas} are held by {_names(holding)}"
        )
    return ""


def _owner_reason(job: JobRecord, holding: Sequence[JobRecord], quota: Quota) -> str:
    limit = quota.by_owner.get(job.owner, 0)
    owner_jobs = [other for other in holding if other.owner == job.owner]
    held = sum(other.replicas for other in owner_jobs)
    if limit and held + job.replicas > limit:
        names = _names(owner_jobs)
        return f"{job.replicas} replicas; {job.owner} holds {held} of its {limit} ({names})"
    return ""


def _names(jobs: Sequence[JobRecord]) -> str:
    names = [job.job_id for job in jobs[:3]]
    return ", ".join(names) + (" and others" if len(jobs) > 3 else "") or "no job"
