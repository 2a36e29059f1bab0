"""A file that several threads load at once."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

from troupe import plugins

TASK = """
import time
time.sleep(0.05)

def score(transition, task):
    return 1.0
"""


def test_file_when_threads_load_it_at_once_then_each_finds_it_whole(tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text(TASK)
    start = Barrier(4)

    def load(_: int) -> object:
        start.wait(10)
        return plugins.load(plugins.REWARDS, f"{tmp_path}/slow.py:score")

    with ThreadPoolExecutor(4) as pool:
        loaded = list(pool.map(load, range(4)))
    assert len(set(map(id, loaded))) == 1
