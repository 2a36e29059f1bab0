"""A run folder is tried before a job begins."""

import resource
from pathlib import Path

import pytest

from troupe.errors import InvalidArgumentError, UnavailableError
from troupe_trainer.job import check_writable


def test_run_folder_when_the_machine_is_short_then_it_is_tried_again(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))  # no file can be opened
    try:
        with pytest.raises(UnavailableError, match="can't write to the run folder") as refused:
            check_writable(tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert refused.value.retryable


def test_run_folder_when_it_is_no_folder_then_the_job_is_refused(tmp_path: Path) -> None:
    (tmp_path / "run").write_bytes(b"")
    with pytest.raises(InvalidArgumentError, match="not writable for the trainer"):
        check_writable(tmp_path / "run")
