"""Signal handling for commands that clean up after themselves."""

import signal
from collections.abc import Generator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def terminate_as_interrupt() -> Generator[None]:
    """SIGTERM ends the command as Ctrl-C does: in order.

    A shell starts background jobs with SIGINT ignored; its handler is restored inside the block,
    or SIGTERM would be ignored with it.
    """

    def interrupt(_: int, __: FrameType | None) -> None:
        signal.raise_signal(signal.SIGINT)

    before_int = signal.getsignal(signal.SIGINT)
    if before_int is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    before_term = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before_term)
        signal.signal(signal.SIGINT, before_int)
