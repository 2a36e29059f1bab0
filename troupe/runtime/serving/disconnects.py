"""Keeps callers who disconnect before their answer out of a service's log.

Owns the filtering of gRPC's log lines about them. Never touches any other line.
"""

import logging

import grpc.aio

LOGGER = "grpc._cython.cygrpc"
"""Where gRPC for asyncio logs what goes wrong with a call."""
_UNSENT = "ExecuteBatchError raised in core"


def without_gone_callers(record: logging.LogRecord) -> bool:
    """A filter of LOGGER: False for an answer that could not be sent.

    gRPC logs an error with a traceback when a connection ends during its calls. Any caller could
    fill the log that way, and an answer that nobody waits for is no fault of the service.
    """
    error = record.exc_info[1] if record.exc_info else None
    is_unsent = isinstance(error, grpc.aio.InternalError) and _UNSENT in record.getMessage()
    return not is_unsent


def quiet_gone_callers() -> None:
    """Install the filter on gRPC's logger in this process. Idempotent."""
    logging.getLogger(LOGGER).addFilter(without_gone_callers)
