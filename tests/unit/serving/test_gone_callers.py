"""The log is quiet about callers who left, and about nothing else."""

import logging

import grpc.aio
import pytest
from grpc._cython import cygrpc

from troupe.runtime.serving.disconnects import LOGGER, quiet_gone_callers, without_gone_callers

UNSENT = "ExecuteBatchError raised in core by servicer method [%s]"


@pytest.mark.parametrize(
    ("message", "error", "is_told"),
    [
        (UNSENT, cygrpc.ExecuteBatchError("execute_batch", ()), False),
        ("Unexpected [%s] raised by servicer", cygrpc.ExecuteBatchError("x", ()), True),
        (UNSENT, grpc.aio.UsageError("Abort already called!"), True),
        ("Unexpected [%s] raised by servicer", KeyError("a bug"), True),
        ("plain words of [%s]", None, True),
    ],
)
def test_line_when_an_answer_could_not_be_sent_then_dropped_and_all_else_is_told(
    message: str, error: Exception | None, is_told: bool
) -> None:
    info = None if error is None else (type(error), error, None)
    record = logging.LogRecord(LOGGER, logging.ERROR, "f", 1, message, ("/x/Y",), info)
    assert bool(without_gone_callers(record)) == is_told


def test_filter_when_set_twice_then_is_there_once() -> None:
    logger = logging.getLogger(LOGGER)
    try:
        quiet_gone_callers()
        quiet_gone_callers()
        assert logger.filters.count(without_gone_callers) == 1
    finally:
        logger.removeFilter(without_gone_callers)
