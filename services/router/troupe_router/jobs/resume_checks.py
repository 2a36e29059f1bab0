"""What a job may be resumed with: its stored spec, and how many steps.

Reads the run folder. Never changes anything.
"""

from pathlib import Path

from troupe.errors import ConflictError, NotFoundError
from troupe.runtime.run_folder import checkpoints_folder, newest_first, step_of
from troupe.spec import Issue, JobSpec, SpecInvalidError, load_spec
from troupe.spec.differences import differences
from troupe.spec.resuming import new_job_from
from troupe.training.task import TASK_NAME
from troupe_router.jobs.job_file import SPEC_FILE, JobHead
from troupe_router.jobs.record import JobRecord


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


def check_unchanged(job: JobRecord, stored: JobSpec, asked: JobSpec) -> None:
    """Refuse another spec for a job that waits or runs: raise ConflictError."""
    old, new = (spec.model_dump(mode="json") for spec in (stored, asked))
    if changed := [pointer for pointer, _, _ in differences(old, new)]:
        raise ConflictError(
            f"job '{job.job_id}' is {job.state} with another {', '.join(changed)}; to change that, "
            "pause the job and resume it"
        )


def check_longer(run_dir: Path, asked: JobSpec, job: JobRecord | JobHead) -> None:
    """Refuse a job that succeeded, unless it goes on from its end: raise ConflictError."""
    learnt = learnt_steps(run_dir, asked)
    begun = f"job '{run_dir.name}' succeeded"
    if learnt < max(job.step, 1):
        what = f"its checkpoint of step {job.step} is gone" if job.step else "it learnt nothing"
        raise ConflictError(f"{begun}, and {what}; {new_job_from(run_dir, asked)}")
    if asked.steps <= learnt:
        longer = f"troupe train --resume {run_dir} --set steps=N"
        other = f", or {new_job_from(run_dir, asked)}"
        if asked.task.name == TASK_NAME:  # its functions are the caller's: no command has them
            longer, other = f"troupe.resume({str(run_dir)!r}, dataset, reward, ..., steps=N)", ""
        raise ConflictError(
            f"{begun} after {learnt} steps; ask for more to train it on (`{longer}`){other}"
        )
