"""Reserves the ids of new jobs: whoever makes the run folder has the id.

Owns the names of new run folders. Never writes what is in them.
"""

from pathlib import Path

from troupe.durable import sync
from troupe.errors import ConflictError, InvalidArgumentError, UnavailableError
from troupe.runtime.transient import is_transient
from troupe_router.jobs.job_file import JOB_FILE, SPEC_FILE


def reserve(runs_dir: Path, name: str) -> tuple[str, Path]:
    """The first free folder `<name>-<n>`, and the job id that it reserves."""
    for number in range(1, 1_000_000):
        job_id = f"{name}-{number}"
        try:
            (runs_dir / job_id).mkdir()
            sync(runs_dir)
        except FileExistsError:
            continue
        except OSError as error:
            message = f"the run folder {runs_dir / job_id} cannot be made: {error.strerror}"
            if is_transient(error):
                raise UnavailableError(f"{message}; free space, and submit again") from error
            raise InvalidArgumentError(message) from error
        return job_id, runs_dir / job_id
    raise ConflictError(f"{runs_dir} is full of jobs called '{name}'; remove some")


def is_reserved_only(run_dir: Path) -> bool:
    """Whether the folder has the spec of a job that never became one.

    The folder of a job that was deleted has a ``job.json``, or is empty.
    """
    return (run_dir / SPEC_FILE).is_file() and not (run_dir / JOB_FILE).exists()
