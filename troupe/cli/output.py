"""The command line's output: consoles, JSON, errors and exit statuses.

Owns the exit statuses. Results go to stdout, everything else to stderr.
"""

import json
import logging
import re
import sys
import threading
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from typing import Any, TextIO

import structlog
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from troupe.errors import ConflictError, InvalidArgumentError, NotFoundError, TroupeError

EXIT_OK = 0
EXIT_FAILED = 1
EXIT_BAD_INPUT = 2
EXIT_INTERRUPTED = 130
_PIPED_WIDTH = 10_000  # no column of a table is cut where there is no screen to fit
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")
"""C0 and C1 control characters, without tab and newline."""

_BAD_INPUT = (InvalidArgumentError, NotFoundError, ConflictError)


class _PlainConsole(Console):
    """Shows text of models, logs and routers, without the characters that control a terminal.

    Brackets and words between colons are what they are, in tables too: styles go by ``Text``.
    """

    def __init__(self, file: TextIO, *, soft_wrap: bool = True, width: int | None = None) -> None:
        super().__init__(
            file=file, soft_wrap=soft_wrap, width=width, highlight=False, markup=False, emoji=False
        )

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """Filters everything that is printed; rich marks the control codes that it makes."""
        for segment in super().render(renderable, options):
            if segment.control or not _CONTROL.search(segment.text):
                yield segment
            else:
                yield Segment(_CONTROL.sub("", segment.text), segment.style)


def out() -> Console:
    """The console for results."""
    is_terminal = sys.stdout.isatty()
    width = None if is_terminal else _PIPED_WIDTH
    return _PlainConsole(sys.stdout, soft_wrap=not is_terminal, width=width)


def err() -> Console:
    """The console for notes and errors."""
    return _PlainConsole(sys.stderr)


class _Loudness:
    """How the process logged before it was quiet, and how many calls want it to be quiet now.

    Calls of several threads overlap: the first makes it quiet, the last one restores it.
    """

    def __init__(self) -> None:
        self._changing = threading.Lock()
        self._num_quiet = 0
        self._before: dict[str, Any] = {}

    def lower(self) -> None:
        """Be quiet until as many calls of ``restore`` came."""
        with self._changing:
            self._num_quiet += 1
            if self._num_quiet > 1:
                return
            self._before = structlog.get_config()
            structlog.configure(
                wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING),
                logger_factory=structlog.PrintLoggerFactory(sys.stderr),
                cache_logger_on_first_use=False,
            )

    def restore(self) -> None:
        """Log as before, where nobody else wants it quiet."""
        with self._changing:
            self._num_quiet -= 1
            if not self._num_quiet:
                structlog.configure(**self._before)


_LOUDNESS = _Loudness()


@contextmanager
def quiet_logs() -> Generator[None]:
    """Show only the warnings of libraries, on stderr: their progress is no command's result."""
    _LOUDNESS.lower()
    try:
        yield
    finally:
        _LOUDNESS.restore()


def note(message: str) -> None:
    """Print a message that is not a result."""
    err().print(message)


def print_json(document: Any) -> None:
    """Print one JSON document on stdout."""
    sys.stdout.write(json.dumps(document, indent=2, default=str) + "\n")


def report(error: TroupeError) -> int:
    """Print ``error`` and return its exit status."""
    err().print(f"error: {error.message}")
    return EXIT_BAD_INPUT if isinstance(error, _BAD_INPUT) else EXIT_FAILED
