"""Streams that repeat themselves, what runs out, and second processes. Run by `make chaos`."""

from pathlib import Path
from typing import Any

import pytest
from chaos_cases import SECONDS, SHORTAGES, STREAMS, Case
from pressed_world import PressedWorld

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(1200)]


@pytest.mark.parametrize("case", [*STREAMS, *SECONDS, *SHORTAGES], ids=lambda case: case.id)
def test_job_when_it_is_pressed_then_ends_as_if_nothing_happened(
    pressed: PressedWorld, chaos_spec: dict[str, Any], undisturbed: Path, case: Case
):
    if case.victim == "tickets":  # most of them lie unread while two are played
        chaos_spec = {**chaos_spec, "limits": {"episodes_in_flight": 2}}
    assert pressed.run(case, chaos_spec, undisturbed).faults == []
