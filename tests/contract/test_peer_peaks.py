"""The peak that a benchmark reports for a child is the child's, and not its parent's."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
PARENT_MB = 900
CHILD = """
import resource
from benchmarks.peer_run import peak_mb
print(peak_mb(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
"""
PARENT = f"""
import subprocess, sys
held = bytearray({PARENT_MB} * 2**20)
subprocess.run([sys.executable, "-c", {CHILD!r}], check=True)
"""


def test_peak_when_the_parent_is_larger_then_only_the_childs_memory_counts() -> None:
    command = [sys.executable, "-c", PARENT]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=110
    )
    peak, with_parent = map(float, done.stdout.split())
    assert peak < PARENT_MB <= with_parent
