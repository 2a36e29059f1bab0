"""What a job may be resumed with, and how a new job starts from the weights of an earlier one."""

from pathlib import Path

from troupe.errors import ConflictError
from troupe.spec.differences import differences
from troupe.spec.job import JobSpec

MAY_CHANGE = frozenset({"steps", "limits", "eval", "checkpoint"})
"""Fields of a spec that may differ when a job is resumed."""
_SHOWN = 5


def check_same_job(run_dir: Path, stored: JobSpec, wanted: JobSpec) -> None:
    """Refuse a spec of another job than that in ``run_dir``: raise ConflictError."""
    old, new = (spec.model_dump(mode="json", exclude=set(MAY_CHANGE)) for spec in (stored, wanted))
    changed = [pointer for pointer, _, _ in differences(old, new)]
    # A parameter that is null is another one than none.
    changed = changed or [f"/{name}" for name in old if old[name] != new.get(name)]
    if changed:
        more = f" and {len(changed) - _SHOWN} more" if len(changed) > _SHOWN else ""
        raise ConflictError(
            f"job '{run_dir.name}' cannot be resumed with another {', '.join(changed[:_SHOWN])}"
            f"{more}; only {', '.join(sorted(MAY_CHANGE))} may change. For the rest "
            f"{new_job_from(run_dir, stored)}"
        )


def new_job_from(run_dir: Path, spec: JobSpec) -> str:
    """How to submit a new job whose policies start from the weights of the job in ``run_dir``."""
    folders = {name: run_dir / "policies" / name / "merged" for name in spec.policies}
    if not all((folder / "config.json").is_file() for folder in folders.values()):
        return (
            "submit a new job; to start it from this one's weights, write them with "
            f"`troupe export {run_dir.name} --out FOLDER` and name them as its policies' models"
        )
    models = " ".join(f"--set policies.{name}.model={path}" for name, path in folders.items())
    return f"submit a new job that starts from this one's weights: `troupe train SPEC {models}`"
