"""Moves the weights that a job exported to ``exports/STEP``, where nobody takes them for its end.

A trainer exports after the job's last step. Never decides when a job goes on.
"""

import shutil
from pathlib import Path

from troupe.durable import make_folder, put, replace_file
from troupe.errors import UnavailableError
from troupe.runtime.run_folder import EXPORT_FILE
from troupe.spec import JobSpec
from troupe.spec.exported import export_document

_WEIGHTS = "policies"


def has_export(run_dir: Path) -> bool:
    """Whether the job has exported weights."""
    return (run_dir / _WEIGHTS).is_dir()


def set_aside(run_dir: Path, spec: JobSpec) -> None:
    """Move the weights that the job of ``spec`` exported after its last step.

    What was exported of that step by hand stays.
    """
    weights, kept = run_dir / _WEIGHTS, run_dir / "exports" / str(spec.steps)
    try:
        make_folder(kept)
        for policy in sorted(weights.iterdir()):
            if not (kept / policy.name).exists():
                put(policy, kept / policy.name)
        replace_file(kept / EXPORT_FILE, export_document(run_dir.name, spec))
        shutil.rmtree(weights)
    except OSError as error:
        raise UnavailableError(
            f"the weights in {weights} can't be moved to {kept} ({error.strerror}); ask again"
        ) from error
