"""Windows of tickets: by size, and from nothing but the spec and what is trained."""

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from trainer_data import job_spec

from troupe.algorithms.load import load_algorithm
from troupe.spec.job import JobSpec
from troupe_trainer.learn.windows import FEWEST, LEAST_TOKENS, Windows


def _windows(spec: JobSpec, num_tickets: int, *, is_exact: bool) -> list[range]:
    windows = Windows(spec, load_algorithm(spec.algorithm).sampler(), is_exact=is_exact)
    return [windows.tickets_of(w, num_tickets) for w in range(windows.count(num_tickets))]


def _spec(tickets: int, tokens: int, *, row: int = 4096, **more: Any) -> JobSpec:
    """One agent, one turn, two candidates, so a ticket has ``tokens`` at most."""
    body = {
        "tasks_per_step": tickets,
        "workflow": {"order": ["solver"], "max_turns": 1},
        "agents": {"solver": {"policy": "shared"}},
        "algorithm": {"kind": "grpo", "group_size": 2},
        "sampling": {"max_new_tokens": tokens // 2},
        "batch": {"tokens_per_row": row, "rows_per_microbatch": 1},
    }
    return job_spec(Path("a-model"), **(body | more))


@pytest.mark.parametrize(
    ("tickets", "tokens", "is_exact", "sizes"),
    [
        (256, 400, True, [1] * 256),
        (10, 100, True, [2] * 5),
        (10, 20, True, [10]),
        (32, 200, True, [1] * 32),
        (32, 200, False, [*[4] * 7, 2, 1, 1]),
        (64, 1000, False, [*[4] * 15, 2, 1, 1]),
        (64, 20, False, [12, 12, 12, 12, 12, 4]),
        (3, 5000, False, [1, 1, 1]),
    ],
)
def test_windows_when_tickets_are_long_or_short_then_have_so_many(
    tickets: int, tokens: int, is_exact: bool, sizes: list[int]
) -> None:
    windows = _windows(_spec(tickets, tokens), tickets, is_exact=is_exact)
    assert [len(window) for window in windows] == sizes


@given(
    tickets=st.integers(1, 600),
    num_tickets=st.integers(1, 700),
    tokens=st.integers(2, 5000),
    row=st.integers(16, 20_000),
    is_exact=st.booleans(),
)
def test_windows_when_a_round_has_any_number_of_tickets_then_each_is_in_one(
    tickets: int, num_tickets: int, tokens: int, row: int, is_exact: bool
) -> None:
    spec = _spec(tickets, tokens, row=row)
    windows = _windows(spec, num_tickets, is_exact=is_exact)
    assert [ticket for window in windows for ticket in window] == list(range(num_tickets))
    assert all(windows)
    if num_tickets <= tickets:
        most = max(1, LEAST_TOKENS // (tokens // 2 * 2), 0 if is_exact else tickets // FEWEST)
        assert all(len(window) <= most for window in windows)
        assert all(len(window) == 1 or len(window) * (tokens // 2 * 2) <= row for window in windows)
    if num_tickets < tickets:  # the first windows of a round do not depend on how long it is
        whole = _windows(spec, tickets, is_exact=is_exact)
        assert windows[:-1] == whole[: len(windows) - 1]
    assert all(len(one) >= len(other) for one, other in pairwise(windows[: len(windows) - 1]))


def test_windows_when_only_where_and_how_fast_it_runs_differs_then_are_the_same() -> None:
    here = _spec(48, 200)
    others: Sequence[dict[str, Any]] = (
        {"batch": {"tokens_per_row": 4096, "rows_per_microbatch": 1, "overlap": True}},
        {"limits": {"episodes_in_flight": 3, "step_timeout_s": 900}},
        {"seed": 7},
        {"trainer": {"per_policy": True}},
    )
    for more in others:
        there = _spec(48, 200, **more)
        for is_exact in (True, False):
            assert _windows(here, 48, is_exact=is_exact) == _windows(there, 48, is_exact=is_exact)
