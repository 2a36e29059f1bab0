"""Which tests share a process, for their fixtures, and which a limit of time leaves out."""

import os
import re
import subprocess
import sys
from pathlib import Path

TESTS = Path(__file__).parents[1]
FILES = (
    "unit/test_one.py",
    "unit/test_two.py",
    "sandbox/test_three.py",
    "unit/env/test_four.py",
    "chaos/test_kill_quick.py",
    "chaos/test_network.py",
)
TEXT = """
import time, pytest
@pytest.mark.parametrize("number", range(6))
def test_that_takes_a_moment(number):
    time.sleep(0.05)
"""


def output_of(folder: Path, *options: str) -> str:
    """What pytest prints of six tests in each of FILES."""
    for name in FILES:
        path = folder / "tests" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(TEXT)
    (folder / "tests" / "conftest.py").write_text('pytest_plugins = ("scheduling",)\n')
    (folder / "pytest.ini").write_text("[pytest]\nmarkers = slow\n")
    command = [sys.executable, "-m", "pytest", "-p", "xdist", "-p", "no:cacheprovider"]
    environment = {x: y for x, y in os.environ.items() if not x.startswith("PYTEST")}
    return subprocess.run(
        [*command, *options],
        cwd=folder,
        env={**environment, "PYTHONPATH": str(TESTS), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        check=True,
        timeout=100,
    ).stdout


def test_files_when_run_by_several_processes_then_each_stays_in_one(tmp_path: Path) -> None:
    output = output_of(tmp_path, "-n", "2", "-v")
    ran = re.findall(r"\[(gw\d)\] .* PASSED tests/(\S+)::", output)
    assert len(ran) == 6 * len(FILES)
    workers = {name: {worker for worker, path in ran if path == name} for name in FILES}
    assert all(len(found) == 1 for found in workers.values()), workers
    assert workers["sandbox/test_three.py"] == workers["unit/env/test_four.py"]
    assert workers["chaos/test_kill_quick.py"] == workers["chaos/test_network.py"]
    assert len(set.union(*workers.values())) == 2


def test_files_when_time_is_over_then_those_of_every_time_run_alone(tmp_path: Path) -> None:
    output = output_of(tmp_path, "-v", "--start-within", "0")
    ran = re.findall(r"tests/(\S+)::\S+ (PASSED|SKIPPED)", output)
    assert len(ran) == 6 * len(FILES)
    assert {name for name, outcome in ran if outcome == "PASSED"} == {"chaos/test_kill_quick.py"}


def test_files_when_their_order_is_drawn_then_those_of_every_time_come_first(
    tmp_path: Path,
) -> None:
    orders = set[tuple[str, ...]]()
    for text in "ab":
        output = output_of(tmp_path, "--collect-only", "-q", "--file-order", text)
        names = tuple(dict.fromkeys(re.findall(r"tests/(\S+)::", output)))
        assert sorted(names) == sorted(FILES)
        assert names[0] == "chaos/test_kill_quick.py"
        orders.add(names)
    assert len(orders) == 2
