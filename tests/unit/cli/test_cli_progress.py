"""Events in, progress out."""

import io

import pytest
from rich.console import Console

from troupe.cli.progress import Progress, clock, panel
from troupe.clients.rest import EventDocument


def event(type_: str, at: float = 0.0, **data: object) -> EventDocument:
    return EventDocument(id="1-0", type=type_, occurred_at=at, data=dict(data))


def recorded(step: int, at: float = 0.0, **more: object) -> EventDocument:
    """The router's word on a step, as it sends it."""
    learned = {"reward_mean": 0.25, "reward_by_agent": {"tool": 0.25}, "kl_rollout": 0.001}
    played = {"success_rate": 0.5, "tokens_per_s": 812.4, "num_episodes": 8}
    times = {"generate": 4.0, "env": 0.5, "learn": 2.0, "publish": 0.25, "checkpoint": 0.2}
    line = {**learned, **played, "wall_s": 8.0, "busy_ratio": 0.75, "interrupted": False}
    phases = {**times, "other": 1.05}
    return event("step.recorded", at, **{"step": step, **line, "phases": phases, **more})


def test_apply_when_a_step_is_recorded_then_its_numbers_and_phases_are_in_the_line() -> None:
    progress = Progress("demo-1", steps=10)
    line = progress.apply(recorded(0))
    assert line is not None
    assert line.startswith("step    1/10")
    for word in ("success 0.50", "reward +0.250", "tokens/s 812", "step 8.0 s", "busy 0.75"):
        assert word in line
    for phase in ("generate 4.0", "env 0.5", "learn 2.0", "publish 0.2", "checkpoint 0.2", "other"):
        assert f"{phase}" in line
    assert progress.step == 1


def test_apply_when_the_trainer_speaks_before_the_router_then_the_step_is_not_told_twice() -> None:
    progress = Progress("demo-1", steps=10)
    assert progress.apply(event("step.learned", step=0, phases={"collect": 2.0})) is None
    assert progress.apply(event("round.played", kind="train", step=0, success_rate=0.5)) is None
    assert (progress.step, progress.phases) == (0, {})


@pytest.mark.parametrize("of", ["disk", "redis"])
def test_apply_when_room_is_short_and_comes_back_then_both_are_said(of: str) -> None:
    progress = Progress("demo-1", steps=10)
    for type_ in (f"{of}.low", f"{of}.resolved"):
        line = progress.apply(event(type_, sentence="there is room"))
        assert line is not None
        assert "there is room" in line


def test_apply_when_a_step_trained_nothing_then_its_numbers_are_left_out() -> None:
    progress = Progress("demo-1", steps=10)
    progress.apply(recorded(0))
    line = progress.apply(recorded(1, kl_rollout=None, reward_mean=None, groups_trained=0))
    assert line is not None
    assert "kl" not in line
    assert "reward" not in line
    assert "success 0.50" in line


def test_apply_when_a_step_waited_for_its_last_draws_then_says_for_how_many() -> None:
    progress = Progress("demo-1", steps=10)
    line = progress.apply(recorded(0, tail_s=38.2, tail_draws=3, num_draws=512))
    assert line is not None
    assert "waited 38 s for 3 of 512 draws" in line
    drawn = io.StringIO()
    Console(file=drawn, width=100).print(panel(progress, 0.0))
    assert "waited 38 s for 3 of 512 draws" in drawn.getvalue()
    line = progress.apply(recorded(1, tail_s=0.9, tail_draws=3, num_draws=512))
    assert line is not None
    assert "waited" not in line


def test_apply_when_nothing_of_an_evaluation_was_played_then_says_so() -> None:
    progress = Progress("demo-1", steps=10)
    told = event("round.played", kind="eval", step=0, success_rate=None, num_episodes=0)
    assert progress.apply(told) == "held-out after 0 steps: no task could be played"
    assert progress.evals == []


def test_eta_when_steps_take_two_seconds_then_is_two_seconds_for_each_left() -> None:
    progress = Progress("demo-1", steps=10)
    assert progress.eta_s is None
    for step in range(4):
        progress.apply(recorded(step, at=100.0 + 2 * step))
    assert progress.eta_s == pytest.approx(2.0 * 6)


def test_apply_when_an_evaluation_is_told_twice_then_it_counts_once() -> None:
    progress = Progress("demo-1", steps=10)
    told = event("round.played", kind="eval", step=0, success_rate=0.375, num_episodes=8)
    assert progress.apply(told) == "held-out after 0 steps: 37.5% of 8 tasks solved"
    progress.apply(told)
    assert progress.evals == [(0, 0.375)]
    rewarded = event("round.played", kind="eval", step=9, success_rate=0, reward_mean=-0.5)
    assert str(progress.apply(rewarded)).endswith("tasks solved, reward -0.500 an episode")


def test_apply_when_the_state_changes_then_the_reason_is_said_once() -> None:
    progress = Progress("demo-1", steps=10)
    line = progress.apply(event("job.state", state="paused", reason="no memory"))
    assert line == "demo-1: paused (no memory)"
    line = progress.apply(event("job.state", state="failed", reason="no memory"))
    assert line == "demo-1: failed"  # the outcome says why
    assert (progress.state, progress.reason) == ("failed", "no memory")


def test_apply_when_something_failed_beside_the_job_then_is_said_in_its_own_words() -> None:
    progress = Progress("demo-1", steps=4)
    line = progress.apply(event("checkpoint.failed", step=2, error="the disk is full"))
    assert line == "checkpoint.failed: the disk is full"
    refused = {"replica": "r-0", "reason": "the digest differs"}
    assert progress.apply(event("weights.refused", **refused)) == (
        "weights.refused: the digest differs"
    )


def test_apply_when_the_event_is_unknown_then_nothing_happens() -> None:
    progress = Progress("demo-1", steps=10)
    assert progress.apply(event("something.new", step=4)) is None
    assert progress.step == 0


def test_panel_when_drawn_before_and_after_a_step_then_shows_what_is_known() -> None:
    progress = Progress("demo-1", steps=10)
    console = Console(file=io.StringIO(), width=100)
    console.print(panel(progress, 0.0))
    progress.apply(recorded(0))
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
