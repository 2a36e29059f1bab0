"""Ends a process that is over and does not end, since a thread of it hangs.

Python joins the threads of every pool before it exits, also of one that was shut down without
waiting. A launcher starts a process again once it has ended, not once it is of no use.
"""

import contextlib
import logging
import os
import sys
import threading
import time

from troupe.runtime.telemetry.logging import get_logger
from troupe.runtime.telemetry.tracing import flush_tracing

EXIT_S = 5.0
"""Seconds that an orderly exit may take once a service is closed."""
FLUSH_S = 5.0
_log = get_logger(__name__)


def exit_within(limit_s: float, status: int) -> None:
    """End this process with ``status`` if it still lives after ``limit_s``; returns at once."""
    watch = threading.Thread(target=_end, args=(limit_s, status), name="exit", daemon=True)
    watch.start()


def _end(limit_s: float, status: int) -> None:
    time.sleep(limit_s)
    main = threading.main_thread()
    threads = [t.name for t in threading.enumerate() if not t.daemon and t is not main]
    _log.warning("service.threads_hang", threads=threads, exit_status=status)
    flush = threading.Thread(target=_flush, daemon=True)
    flush.start()
    flush.join(FLUSH_S)
    os._exit(status)


def _flush() -> None:
    """Write what an orderly exit would; a stream or a collector that blocks is left behind."""
    for part in (sys.stdout.flush, sys.stderr.flush, logging.shutdown, flush_tracing):
        with contextlib.suppress(Exception):
            part()
