"""A plan's pace, from the summary of an earlier job."""

import json
from pathlib import Path
from typing import Any

import pytest

from troupe.spec import parse_spec
from troupe_router.jobs.estimate import find_pace
from troupe_router.jobs.record import JobRecord


def ended(run_dir: Path, **more: Any) -> JobRecord:
    """A job of four steps, ten seconds each, that took 25 s: they were played ahead."""
    document: dict[str, Any] = {
        "name": "t",
        "steps": 4,
        "task": {"name": "plan_path"},
        "workflow": {"order": ["tool", "planner"]},
        "agents": {"tool": {"policy": "p"}, "planner": {"policy": "p"}},
        "policies": {"p": {"model": "m"}},
        "algorithm": {"loss": {"importance": {"cap": 2.0}}},
        "max_staleness": 2,
    }
    summary = {"steps": 4, "steps_wall_s": 40.0, "wall_s": 25.0, "tokens": 400}
    (run_dir / "summary.json").write_text(json.dumps(summary))
    return JobRecord("t-1", parse_spec({**document, **more}), run_dir, "succeeded", created_at=1.0)


def test_pace_when_steps_overlap_then_is_of_the_job_and_not_of_their_sum(tmp_path: Path) -> None:
    job = ended(tmp_path)
    pace = find_pace(job.spec, [job])
    assert pace is not None
    assert (pace.step_s, pace.tokens_per_step) == (25.0 / 4, 100.0)


@pytest.mark.parametrize(
    "other",
    [{"max_staleness": 0}, {"algorithm": {"kind": "grpo", "loss": {"importance": {"cap": 2.0}}}}],
)
def test_pace_when_the_earlier_job_played_otherwise_then_there_is_none(
    tmp_path: Path, other: dict[str, Any]
) -> None:
    job = ended(tmp_path)
    assert find_pace(parse_spec(job.spec.model_dump(mode="json") | other), [job]) is None
