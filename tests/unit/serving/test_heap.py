import gc
import subprocess
import sys

import pytest

from troupe.runtime.serving.memory import settle_heap


def test_heap_when_settled_then_what_was_loaded_is_not_collected_again():
    before, threshold = gc.get_freeze_count(), gc.get_threshold()
    loaded = [[number] for number in range(1000)]
    try:
        settle_heap()
        assert gc.get_freeze_count() >= before + len(loaded)
        assert not any(loaded is each for each in gc.get_objects())
    finally:
        gc.unfreeze()
        gc.set_threshold(*threshold)


_FAULTS = """
import resource
import threading
from troupe.runtime.serving.memory import keep_freed_memory
{keep}
def work():
    for _ in range(10):
        blocks = [bytearray(20 << 20) for _ in range(4)]
        del blocks
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
work()
thread = threading.Thread(target=work)
thread.start()
thread.join()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="mallopt is glibc's")
def test_freed_memory_when_kept_then_its_pages_are_fetched_once():
    def faults(keep: str) -> int:
        command = [sys.executable, "-c", _FAULTS.format(keep=keep)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
        return int(done.stdout)

    assert faults("keep_freed_memory()") * 3 < faults("")


_RESIDENT = """
import psutil
from troupe.runtime.serving.memory import keep_freed_memory, return_freed_memory
keep_freed_memory()
blocks = [bytearray(20 << 20) for _ in range(8)]
last = bytearray(1 << 20)
del blocks
before = psutil.Process().memory_info().rss
return_freed_memory()
print(before - psutil.Process().memory_info().rss)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="malloc_trim is glibc's")
def test_freed_memory_when_it_is_returned_then_the_process_is_smaller_by_it():
    command = [sys.executable, "-c", _RESIDENT]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert int(done.stdout) > 150 << 20
