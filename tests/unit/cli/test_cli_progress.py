"""Events in, progress out."""

import io

import pytest
from rich.console import Console

from troupe.cli.progress import Progress, clock, panel
from troupe.clients.rest import JobEvent


def event(type_: str, at: float = 0.0, **data: object) -> JobEvent:
    return JobEvent(id="1-0", type=type_, occurred_at=at, data=dict(data))


def test_apply_when_a_step_is_learned_then_its_numbers_and_phases_are_in_the_line() -> None:
    progress = Progress("demo-1", steps=10)
    line = progress.apply(
        event("step.learned", step=0, success_rate=0.5, phases={"collect": 2.0, "learn": 1.25})
    )
    assert line is not None
    assert "1/10" in line
    assert "success 0.50" in line
    assert "learn 1.2 s" in line
    assert progress.step == 1


def test_eta_when_steps_take_two_seconds_then_is_two_seconds_for_each_left() -> None:
    progress = Progress("demo-1", steps=10)
    assert progress.eta_s is None
    for step in range(4):
        progress.apply(event("step.learned", at=100.0 + 2 * step, step=step))
    assert progress.eta_s == pytest.approx(2.0 * 6)


def test_apply_when_an_evaluation_is_told_twice_then_it_counts_once() -> None:
    progress = Progress("demo-1", steps=10)
    told = event("round.played", kind="eval", step=0, success_rate=0.375, num_episodes=8)
    assert progress.apply(told) == "held-out after 0 steps: 37.5% of 8 tasks solved"
    progress.apply(told)
    assert progress.evals == [(0, 0.375)]


def test_apply_when_the_state_changes_then_reason_is_said() -> None:
    progress = Progress("demo-1", steps=10)
    line = progress.apply(event("job.state", state="failed", reason="no memory"))
    assert line == "demo-1: failed (no memory)"
    assert progress.state == "failed"


def test_apply_when_the_event_is_unknown_then_nothing_happens() -> None:
    progress = Progress("demo-1", steps=10)
    assert progress.apply(event("something.new", step=4)) is None
    assert progress.step == 0


def test_panel_when_drawn_before_and_after_a_step_then_shows_what_is_known() -> None:
    progress = Progress("demo-1", steps=10)
    console = Console(file=io.StringIO(), width=100)
    console.print(panel(progress, 0.0))
    progress.apply(event("step.learned", step=0, success_rate=0.5, phases={"learn": 1.0}))
    progress.apply(event("round.played", kind="eval", step=0, success_rate=0.25, num_episodes=8))
    console.print(panel(progress, 0.0))
    drawn = console.file.getvalue()
    assert "step 1/10" in drawn
    assert "25.0%" in drawn


@pytest.mark.parametrize(
    ("seconds", "shown"), [(None, "-"), (0, "0:00"), (61, "1:01"), (3661, "1:01:01")]
)
def test_clock_when_given_seconds_then_is_minutes_and_seconds(
    seconds: float | None, shown: str
) -> None:
    assert clock(seconds) == shown
