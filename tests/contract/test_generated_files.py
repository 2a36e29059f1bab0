"""Committed generated files are what their sources give."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_generated_files_when_made_again_then_do_not_differ() -> None:
    done = subprocess.run(
        ["bash", "scripts/check_generated.sh"],
        cwd=ROOT,
        env={**os.environ, "PYTHON": sys.executable},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
