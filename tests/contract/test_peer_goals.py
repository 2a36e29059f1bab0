"""What `benchmarks.vs_peers` asks of Troupe, by hand-made rates."""

from typing import Any

import pytest

from benchmarks.vs_peers import goals_of

TINY = {"comlrl_magrpo": 40.0, "trl_grpo": 100.0, "troupe_in_process": 120.0}
REAL = {"comlrl_magrpo": 1.0, "trl_grpo": 2.0}


def rows_of(rates: dict[str, float], **peaks: int) -> list[dict[str, Any]]:
    """As `row_of` makes them, so far as a goal reads them."""
    return [
        {"name": name, "sequences_per_cpu_s": rate, "peak_mb": peaks.get(name, 1)}
        for name, rate in rates.items()
    ]


def held(goals: list[dict[str, Any]]) -> dict[str, tuple[float, bool]]:
    return {goal["name"]: (goal["goal"], goal["holds"]) for goal in goals}


@pytest.mark.parametrize(("rate", "holds"), [(119.0, False), (120.0, True)])
def test_services_when_the_model_is_tiny_then_are_to_be_a_fifth_faster_than_trl(
    rate: float, holds: bool
) -> None:
    rows = rows_of({**TINY, "troupe_services": rate})
    assert held(goals_of(rows, is_real=False)) == {
        "troupe_services over comlrl_magrpo": (2.0, True),
        "troupe_services over trl_grpo": (1.2, holds),
        "troupe_in_process over comlrl_magrpo": (3.0, True),
    }


@pytest.mark.parametrize(("rate", "peak", "holds"), [(2.9, 9, False), (3.0, 8, True)])
def test_services_when_the_model_is_real_then_are_to_be_half_faster_than_trl_in_its_memory(
    rate: float, peak: int, holds: bool
) -> None:
    rows = rows_of({**REAL, "troupe_services": rate}, trl_grpo=8, troupe_services=peak)
    assert held(goals_of(rows, is_real=True)) == {
        "troupe_services over comlrl_magrpo": (2.5, True),
        "troupe_services over trl_grpo": (1.5, holds),
        "peak MB of services, TRL's at most": (8, holds),
    }


def test_goals_when_the_peers_were_left_out_then_there_are_none() -> None:
    rows = rows_of({"troupe_in_process": 1.0, "troupe_services": 1.0})
    assert goals_of(rows, is_real=True) == []
