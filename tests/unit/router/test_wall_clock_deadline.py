"""Limits of time, on clocks that are set while they run."""

import pytest

from troupe.aio import WallClockDeadline


class Clocks:
    """A wall clock that may be set and a monotonic one that may not."""

    def __init__(self) -> None:
        self.wall, self.monotonic = 1_000_000.0, 50.0

    def patience(self) -> WallClockDeadline:
        return WallClockDeadline(3600.0, wall=lambda: self.wall, monotonic=lambda: self.monotonic)

    def pass_by(self, seconds: float) -> None:
        self.wall += seconds
        self.monotonic += seconds


def test_left_when_time_passes_then_runs_out_after_the_limit():
    clocks = Clocks()
    patience = clocks.patience()
    assert patience.left_s(clocks.wall - 600.0) == 3000.0  # begun in an earlier process
    began = clocks.wall
    assert patience.left_s(began) == 3600.0
    clocks.pass_by(3599.0)
    assert patience.left_s(began) == 1.0
    clocks.pass_by(1.0)
    assert patience.left_s(began) == 0.0
    assert patience.left_s(clocks.wall) == 3600.0  # the next step


@pytest.mark.parametrize("jump_s", [3600.0, -3600.0, 1e6])
def test_left_when_the_clock_is_set_then_the_limit_stays_what_it_was(jump_s: float):
    clocks = Clocks()
    patience, began = clocks.patience(), clocks.wall
    assert patience.left_s(began) == 3600.0
    clocks.wall += jump_s
    clocks.pass_by(60.0)
    assert patience.left_s(began) == 3540.0


def test_left_when_the_instant_lies_ahead_then_no_longer_than_the_limit():
    clocks = Clocks()
    assert clocks.patience().left_s(clocks.wall + 7200.0) == 3600.0
