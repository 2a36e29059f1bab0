"""A process whose event loop stands still ends; one that is slow or was stopped does not."""

import asyncio
import subprocess
import sys

from troupe.runtime.serving.event_loop_watchdog import EventLoopWatchdog

STUCK = """
import asyncio, threading
from troupe.runtime.serving.event_loop_watchdog import EventLoopWatchdog

async def main():
    EventLoopWatchdog(stalled_s=1.0, look_s=0.25).start()
    await asyncio.sleep(0.1)
    lock = threading.Lock()
    lock.acquire()
    lock.acquire(timeout=300)

asyncio.run(main())
"""


def test_process_when_its_loop_stands_still_then_ends_and_says_where():
    done = subprocess.run(
        [sys.executable, "-c", STUCK], capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 1
    assert "stood still for 1 s" in done.stderr
    assert "in main" in done.stderr


async def test_pulse_when_the_loop_beats_between_looks_then_it_is_never_stalled():
    pulse = EventLoopWatchdog(stalled_s=3.0, look_s=1.0)
    looks: list[bool] = []
    for beats in (True, False, False, True, False, False, False):
        if beats:
            pulse.beat()
        looks.append(pulse.is_stalled())
    pulse.stop()
    await asyncio.sleep(0)
    assert looks == [False, False, False, False, False, False, True]
