"""Says where a user's code is while it keeps a command waiting, which it may do for ever."""

import inspect
import threading
import time
from collections.abc import Callable
from typing import TypeVar

from troupe.code_places import running_in

_T = TypeVar("_T")
_EVERY_S = 10.0


def telling_where(
    call: Callable[[], _T], what: str, tell: Callable[[str], None], *, every_s: float = _EVERY_S
) -> _T:
    """``call()``; ``tell`` every ``every_s`` that ``what`` goes on, and the line where it is."""
    here, thread, began = inspect.currentframe(), threading.get_ident(), time.monotonic()
    is_over = threading.Event()

    def watch() -> None:
        while not is_over.wait(every_s):
            place = running_in(thread, here)
            at = f": at {place}" if place else ""
            tell(f"{what} after {time.monotonic() - began:.0f} s{at}")

    watching = threading.Thread(target=watch, daemon=True)
    watching.start()
    try:
        return call()
    finally:
        is_over.set()
        watching.join()
