"""One tree of errors: each class knows its gRPC code, HTTP status, reason and whether to retry.

Raised by any room; turned into a gRPC status by one interceptor, into problem+json by one
handler, and back into the same class by one client hook. A message says what was wrong, where,
and what to do about it.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    import grpc


class TroupeError(Exception):
    """Root of all errors that Troupe raises on purpose.

    ``code`` names a ``grpc.StatusCode``: an error is raised where gRPC is not loaded, too.
    ``pointer`` is a JSON pointer into the offending document where there is one.
    """

    code: ClassVar[str] = "INTERNAL"
    http_status: ClassVar[int] = 500
    retryable: ClassVar[bool] = False
    reason: ClassVar[str] = "INTERNAL"

    def __init__(self, message: str, *, pointer: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.pointer = pointer


class InvalidArgumentError(TroupeError):
    """The caller's input is wrong; the same call will fail again."""

    code = "INVALID_ARGUMENT"
    http_status = 422
    reason = "INVALID_ARGUMENT"


class ForbiddenError(InvalidArgumentError):
    """Who asks is known, and may not do this."""

    code = "PERMISSION_DENIED"
    http_status = 403
    reason = "FORBIDDEN"


class StateChangedError(InvalidArgumentError):
    """An episode's state is not as the env service gave it out; it was not judged."""

    reason = "STATE_CHANGED"


class NotFoundError(TroupeError):
    """What was named does not exist."""

    code = "NOT_FOUND"
    http_status = 404
    reason = "NOT_FOUND"


class ConflictError(TroupeError):
    """The request contradicts what is there: another body under one key, a closed job."""

    code = "ALREADY_EXISTS"
    http_status = 409
    reason = "CONFLICT"


class VersionNotLoadedError(TroupeError):
    """The replica does not hold the asked policy version (yet); another one may."""

    code = "FAILED_PRECONDITION"
    http_status = 409
    retryable = True
    reason = "VERSION_NOT_LOADED"


class WeightsRejectedError(TroupeError):
    """New weights did not arrive as they were sent; the old version goes on serving."""

    code = "DATA_LOSS"
    http_status = 502
    reason = "WEIGHTS_REJECTED"


class OverloadedError(TroupeError):
    """A bounded queue is full; try again later."""

    code = "RESOURCE_EXHAUSTED"
    http_status = 429
    retryable = True
    reason = "OVERLOADED"


class UnavailableError(TroupeError):
    """A machine's failure: a process or connection is down."""

    code = "UNAVAILABLE"
    http_status = 503
    retryable = True
    reason = "UNAVAILABLE"


class DeadlineError(TroupeError):
    """The answer did not come in time."""

    code = "DEADLINE_EXCEEDED"
    http_status = 504
    retryable = True
    reason = "DEADLINE_EXCEEDED"


class JobFailedError(TroupeError):
    """The job cannot go on; the message is what the user sees."""

    code = "ABORTED"
    http_status = 500
    reason = "JOB_FAILED"


class RewardFailedError(TroupeError):
    """A user's reward function raised, or gave what is no number; nothing was scored."""

    code = "ABORTED"
    reason = "REWARD_FAILED"


class FencedError(TroupeError):
    """Another process has taken over this one's work: it must stop, and change nothing more."""

    code = "ABORTED"
    http_status = 409
    reason = "FENCED"


def all_errors() -> Iterator[type[TroupeError]]:
    """Every class of the tree, root first."""
    pending: list[type[TroupeError]] = [TroupeError]
    while pending:
        cls = pending.pop(0)
        yield cls
        pending.extend(cls.__subclasses__())


def error_for_reason(reason: str) -> type[TroupeError] | None:
    """The class with this stable ``reason``, or None."""
    return next((cls for cls in all_errors() if cls.reason == reason), None)


def error_for_code(code: "grpc.StatusCode") -> type[TroupeError]:
    """The class for a bare gRPC status, as sent by something that is not Troupe.

    CANCELLED comes from a transport that broke down: whoever cancels a call himself gets
    ``CancelledError`` and never asks.
    """
    if code.name == "CANCELLED":
        return UnavailableError
    return next((cls for cls in all_errors() if cls.code == code.name), TroupeError)
