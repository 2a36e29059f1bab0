"""Callers who leave before their answer: nothing that a service's log needs to tell.

Owns what becomes of gRPC's own log lines about them. Never touches a line about anything else.
"""

import logging

import grpc.aio

LOGGER = "grpc._cython.cygrpc"
"""Where gRPC for asyncio logs what goes wrong with a call."""
_UNSENT = "ExecuteBatchError raised in core"


def without_gone_callers(record: logging.LogRecord) -> bool:
    """A filter of LOGGER: False for an answer that could not be sent.

    gRPC logs an error with a traceback when a connection ends under its calls. Whoever can call
    could fill the log so, and an answer that nobody waits for is no fault of the service.
    """
    error = record.exc_info[1] if record.exc_info else None
    is_unsent = isinstance(error, grpc.aio.InternalError) and _UNSENT in record.getMessage()
    return not is_unsent


def quiet_gone_callers() -> None:
    """Filter gRPC's logger of this process; a second time changes nothing."""
    logging.getLogger(LOGGER).addFilter(without_gone_callers)
