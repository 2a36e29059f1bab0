"""Structured logs: one JSON object a line on stderr, event names instead of sentences.

Owns the set-up of structlog and of the standard library's logging. Libraries never call it;
services and tools do, once, at start.
"""

import logging
import sys
from contextlib import suppress
from typing import Any

import structlog

from troupe.runtime.telemetry.tracing import trace_ids


def configure_logging(service: str, *, level: str = "info", **bound: str) -> None:
    """Send structlog and ``logging`` to stderr as JSON lines with ``service`` and ``bound``."""
    number = logging.getLevelNamesMapping()[level.upper()]
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        _add_trace_ids,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
    ]
    structlog.configure(
        processors=[*shared, structlog.processors.JSONRenderer(default=str)],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=lambda *_: _LineLogger(),
        cache_logger_on_first_use=False,
    )
    formatter = structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=[*shared, structlog.stdlib.add_logger_name],
        processors=[
            structlog.stdlib.ProcessorFormatter.remove_processors_meta,
            structlog.processors.JSONRenderer(default=str),
        ],
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(formatter)
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(max(number, logging.INFO))
    for noisy in ("httpx", "httpcore", "uvicorn.access", "filelock"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    structlog.contextvars.bind_contextvars(service=service, **bound)


class _LineLogger(structlog.PrintLogger):
    """Prints lines to the stream of the moment: whoever replaces sys.stderr later gets them.

    A line that a full disk refuses is lost, and its work is not.
    """

    def __init__(self) -> None:
        super().__init__(sys.stderr)

    def msg(self, message: str) -> None:
        """Print ``message``."""
        with suppress(OSError):
            super().msg(message)

    debug = info = warn = warning = error = critical = exception = fatal = failure = log = msg


def _add_trace_ids(_logger: Any, _method: str, event: Any) -> Any:
    event.update(trace_ids())
    return event


def get_logger(name: str) -> Any:
    """A logger of lines with ``module=name``; use it as ``log.info("event.name", key=value)``."""
    return structlog.get_logger(module=name)
