"""Every arm of `benchmarks.learning_curve` is a job that the platform takes."""

from pathlib import Path

import pytest

from benchmarks.learning_arms import ARMS, SMALL, TASKS, spec_of
from benchmarks.learning_curve import parse
from troupe.episodes.build import load_parts
from troupe.spec.job import JobSpec


@pytest.mark.parametrize("arm", ARMS)
@pytest.mark.parametrize("tasks", [TASKS, SMALL])
def test_arm_is_a_job_that_can_be_played(arm: str, tasks: dict, tmp_path: Path) -> None:
    for task in tasks.values():
        document = spec_of(arm, task, tmp_path, 0, parse([]))
        spec = JobSpec.model_validate(document)
        assert load_parts(spec).family.name == task.family
