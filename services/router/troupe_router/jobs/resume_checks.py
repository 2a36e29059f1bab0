"""What a job may be resumed with: its stored spec, and the fields that may be others.

Reads the run folder. Never changes anything.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from troupe.errors import ConflictError, NotFoundError
from troupe.runtime.run_folder import checkpoints_folder, newest_first, step_of
from troupe.spec import Issue, JobSpec, SpecInvalidError, load_spec
from troupe_router.jobs.job_file import SPEC_FILE
from troupe_router.jobs.record import JobRecord

MAY_CHANGE = frozenset({"steps", "limits", "eval", "checkpoint"})
"""Fields of a spec that may differ when a job is resumed."""


def stored_spec(run_dir: Path, job_id: str) -> JobSpec:
    """The spec of a run folder; raises NotFoundError."""
    path = run_dir / SPEC_FILE
    if not path.is_file():
        raise NotFoundError(f"no job '{job_id}': there is no {path}; check the run folder")
    return load_spec(path)


def before_layout(wanted: JobSpec, stored: JobSpec, record: JobRecord | None) -> JobSpec:
    """``wanted`` as it was asked for, if it has the replicas and ranks that a layout gave."""
    given = record.spec if record else stored
    if (wanted.policies, wanted.trainer) != (given.policies, given.trainer):
        return wanted
    return wanted.model_copy(update={"policies": stored.policies, "trainer": stored.trainer})


def check_same_job(job_id: str, stored: JobSpec, wanted: JobSpec) -> None:
    """Refuse a spec of another job: raise ConflictError."""
    old: Mapping[str, Any] = stored.model_dump(mode="json")
    new: Mapping[str, Any] = wanted.model_dump(mode="json")
    names = (old.keys() | new.keys()) - MAY_CHANGE  # a default part may be left out of either
    changed = sorted(name for name in names if old.get(name) != new.get(name))
    if changed:
        raise ConflictError(
            f"job '{job_id}' cannot be resumed with another {', '.join(changed)}; "
            f"only {', '.join(sorted(MAY_CHANGE))} may change"
        )


def learnt_steps(run_dir: Path, spec: JobSpec) -> int:
    """The newest step that every trainer of the job may have a checkpoint of; 0 without one."""
    folders = (checkpoints_folder(run_dir, policy) for policy in spec.trainers())
    return min(max(map(step_of, newest_first(folder)), default=0) for folder in folders)


def check_steps(run_dir: Path, asked: JobSpec) -> None:
    """Refuse fewer steps than the job has already learnt."""
    learnt = learnt_steps(run_dir, asked)
    if asked.steps < learnt:
        fault = (
            f"the job has learnt {learnt} steps, and {asked.steps} are fewer; ask for at "
            f"least {learnt}, or export the checkpoint of an earlier step"
        )
        raise SpecInvalidError([Issue("/steps", fault)])
