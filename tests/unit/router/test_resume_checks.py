"""What a refused resume of a finished run says to do."""

import re
import time
from pathlib import Path
from typing import Any

import pytest

from troupe.errors import ConflictError
from troupe.spec import JobSpec, parse_spec
from troupe.training.task import TASK_NAME
from troupe_router.jobs.record import JobRecord
from troupe_router.jobs.resume_checks import check_longer


def of_task(task: dict[str, Any]) -> JobSpec:
    return parse_spec(
        {
            "name": "done",
            "steps": 2,
            "task": task,
            "workflow": {"order": ["a"]},
            "agents": {"a": {"policy": "p"}},
            "policies": {"p": {"model": "m"}},
        }
    )


@pytest.mark.parametrize(
    ("task", "says"),
    [
        ({"name": "sudoku"}, "(`troupe train --resume {} --set steps=N`), or submit a new job"),
        ({"name": TASK_NAME}, "(`troupe.resume('{}', dataset, reward, ..., steps=N)`)"),
    ],
)
def test_resume_when_a_finished_run_gets_no_more_steps_then_it_says_what_trains_it_on(
    task: dict[str, Any], says: str, tmp_path: Path
) -> None:
    (tmp_path / "checkpoints" / "step-00002").mkdir(parents=True)
    spec = of_task(task)
    job = JobRecord("done-1", spec, tmp_path, "succeeded", created_at=time.time(), step=2)
    says = re.escape(f"after 2 steps; ask for more to train it on {says.format(tmp_path)}")
    with pytest.raises(ConflictError, match=says):
        check_longer(tmp_path, spec, job)
