"""Maps servicers' errors to gRPC statuses, in one place, and counts calls."""

import time
from typing import Any

import grpc
import grpc.aio

from troupe.clients.status import sendable, trailing_of
from troupe.errors import DeadlineError, TroupeError, UnavailableError
from troupe.runtime.serving.decoding import refusing_malformed
from troupe.runtime.serving.wrapping import Behaviour, WrappingInterceptor
from troupe.runtime.telemetry import metrics
from troupe.runtime.telemetry.logging import get_logger
from troupe.runtime.transient import is_transient

_log = get_logger(__name__)


class ErrorInterceptor(WrappingInterceptor):
    """A TroupeError becomes its status and reason; anything else is logged and INTERNAL."""

    def prepared(self, handler: Any, method: str) -> Any:
        """The handler, changed to refuse bytes that it can't decode."""
        return refusing_malformed(handler, method)

    def around(self, behaviour: Behaviour, method: str) -> Behaviour:
        """``behaviour``, counted and timed, with its errors sent as statuses."""
        answered = metrics.GRPC_REQUESTS.labels(method, grpc.StatusCode.OK.name)
        seconds = metrics.GRPC_SECONDS.labels(method)

        async def guarded(request: Any, context: grpc.aio.ServicerContext[Any, Any]) -> Any:
            started = time.perf_counter()
            code = grpc.StatusCode.OK
            try:
                return await behaviour(request, context)
            # An abort, also one whose caller is gone: gRPC ends both quietly.
            except grpc.aio.BaseError:
                code = context.code() or grpc.StatusCode.UNKNOWN
                raise
            except Exception as error:
                failure = _as_troupe(error, method)
                code = grpc.StatusCode[failure.code]
                await context.abort(code, sendable(failure.message), trailing_of(failure))
            finally:
                is_ok = code is grpc.StatusCode.OK
                (answered if is_ok else metrics.GRPC_REQUESTS.labels(method, code.name)).inc()
                seconds.observe(time.perf_counter() - started)

        return guarded


def _as_troupe(error: Exception, method: str) -> TroupeError:
    if isinstance(error, TroupeError):
        return error
    if isinstance(error, TimeoutError):
        return DeadlineError(f"{method} did not finish in time.")
    _log.error("grpc.failed", method=method, exc_info=error)
    if is_transient(error):
        return UnavailableError(
            f"{method} failed for want of memory, threads, disk or file descriptors "
            f"({type(error).__name__}: {error}). Try again; give the service more of it."
        )
    return TroupeError(
        f"{method} failed with {type(error).__name__}: {error}. This is a bug or a broken "
        "installation; the service's log has the traceback."
    )
