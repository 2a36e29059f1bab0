"""What `make chaos` records, and what it leaves alone, by how its suites end."""

import os
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parent / "run_matrix.sh"
PYTHON = """#!/bin/sh
# Stands for Python: a suite records a line and ends with the status that is asked for.
case "$*" in
    *tests/protocol*) exit ${PROTOCOL:-0} ;;
    *test_packet_loss*) exit ${LOSS:-0} ;;
    *tests/chaos*) echo new >> build/chaos/chaos.jsonl; exit ${KILLS:-0} ;;
    *reliability_table*) cp "$2" "$3" ;;
esac
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout with a recording, its page and a Python that only pretends."""
    (tmp_path / "python").write_text(PYTHON)
    (tmp_path / "python").chmod(0o755)
    # Stands for the namespace, which not every machine allows.
    (tmp_path / "unshare").write_text('#!/bin/sh\nshift 3; [ "$1" = ip ] || { shift 3; "$@"; }\n')
    (tmp_path / "unshare").chmod(0o755)
    for name in ("benchmarks/results/chaos.jsonl", "docs/reliability.md"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text("old\n")
    return tmp_path


def run(checkout: Path, *arguments: str, **statuses: int) -> "subprocess.CompletedProcess[str]":
    variables = {name: str(status) for name, status in statuses.items()}
    path = f"{checkout}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(
        [SCRIPT, checkout / "python", *arguments],
        cwd=checkout,
        env=os.environ | variables | {"PATH": path},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def recorded(checkout: Path) -> tuple[str, str]:
    names = ("benchmarks/results/chaos.jsonl", "docs/reliability.md")
    recording, page = ((checkout / name).read_text().strip() for name in names)
    return recording, page


@pytest.mark.parametrize(
    "statuses", [{}, {"KILLS": 1}, {"PROTOCOL": 1}, {"LOSS": 1}, {"LOSS": 5}], ids=str
)
def test_matrix_when_whole_then_its_recording_replaces_the_old_one(
    statuses: dict[str, int], checkout: Path
) -> None:
    done = run(checkout, **statuses)
    assert done.returncode == (1 in statuses.values())
    assert recorded(checkout) == ("new", "new")


def test_matrix_when_some_of_it_is_chosen_then_what_was_recorded_stays(checkout: Path) -> None:
    done = run(checkout, "-k", "kill-trainer or zombie", PROTOCOL=5, LOSS=5)
    assert done.returncode == 0, done.stderr
    assert recorded(checkout) == ("old", "old")
    assert (checkout / "build/chaos/chaos.jsonl").read_text() == "new\n"


def test_matrix_when_nothing_is_chosen_then_fails_and_says_so(checkout: Path) -> None:
    done = run(checkout, "-k", "nonsense", PROTOCOL=5, KILLS=5, LOSS=5)
    assert done.returncode == 5
    assert "no test was selected by: -k nonsense" in done.stderr
    assert recorded(checkout) == ("old", "old")


@pytest.mark.parametrize("statuses", [{"PROTOCOL": 2}, {"KILLS": 2}, {"KILLS": 137}], ids=str)
def test_matrix_when_interrupted_then_what_was_recorded_stays(
    statuses: dict[str, int], checkout: Path
) -> None:
    done = run(checkout, **statuses)
    assert done.returncode in statuses.values()
    assert recorded(checkout) == ("old", "old")
