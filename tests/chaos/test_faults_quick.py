"""The share of network and stream faults that every commit runs."""

from pathlib import Path
from typing import Any

import pytest
from chaos_cases import QUICK_NETWORK, QUICK_STREAM
from pressed_world import PressedWorld
from wired_world import WiredWorld

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]


def test_job_when_a_stream_repeats_itself_then_ends_as_if_nothing_happened(
    pressed: PressedWorld, chaos_spec: dict[str, Any], undisturbed: Path
):
    assert pressed.run(QUICK_STREAM, chaos_spec, undisturbed).faults == []


def test_job_when_connections_are_reset_then_ends_as_if_nothing_happened(
    wired: WiredWorld, chaos_spec: dict[str, Any], undisturbed: Path
):
    assert wired.run(QUICK_NETWORK, chaos_spec, undisturbed).faults == []
