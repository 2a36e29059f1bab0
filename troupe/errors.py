"""One tree of errors: each class knows its gRPC code, HTTP status, reason and whether to retry.

Raised by any room; turned into a gRPC status by one interceptor, into problem+json by one
handler, and back into the same class by one client hook. A message says what was wrong, where,
and what to do about it.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    import grpc


class TroupeError(Exception):
    """Root of all errors that Troupe raises on purpose.

    ``code`` is the name of a ``grpc.StatusCode``, so errors can be raised without loading gRPC.
    ``pointer`` is a JSON pointer into the offending document where there is one. ``ends_episode``:
    only the whole episode may be tried again, since no replica can answer this call any more.
    """

    code: ClassVar[str] = "INTERNAL"
    http_status: ClassVar[int] = 500
    retryable: ClassVar[bool] = False
    ends_episode: ClassVar[bool] = False
    reason: ClassVar[str] = "INTERNAL"

    def __init__(self, message: str, *, pointer: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.pointer = pointer

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled without its constructor, which may take other arguments than the message."""
        return _unpickled, (type(self), self.args), self.__dict__


def _unpickled(cls: type[TroupeError], args: tuple[Any, ...]) -> TroupeError:
    return cls.__new__(cls, *args)


class InvalidArgumentError(TroupeError):
    """The caller's input is wrong; the same call will fail again."""

    code = "INVALID_ARGUMENT"
    http_status = 422
    reason = "INVALID_ARGUMENT"


class ForbiddenError(InvalidArgumentError):
    """The caller is authenticated but not allowed to do this."""

    code = "PERMISSION_DENIED"
    http_status = 403
    reason = "FORBIDDEN"


class StateChangedError(InvalidArgumentError):
    """An episode's state differs from the one that the env service issued; it was not judged."""

    reason = "STATE_CHANGED"


class PromptTooLongError(InvalidArgumentError):
    """A prompt fills its model's context: not a token can be sampled."""

    reason = "PROMPT_TOO_LONG"


class ProgramBadCallError(InvalidArgumentError):
    """An agent program asked for what is not served, or for an agent that no seat claims."""

    reason = "PROGRAM_BAD_CALL"


class ProgramNoCallError(InvalidArgumentError):
    """An agent program returned, or raised, before any agent had answered it."""

    reason = "PROGRAM_NO_CALL"


class ProgramDivergedError(InvalidArgumentError):
    """An agent program, answered the same, asked something else: it is not repeatable."""

    reason = "PROGRAM_DIVERGED"


class NotFoundError(TroupeError):
    """The named resource does not exist."""

    code = "NOT_FOUND"
    http_status = 404
    reason = "NOT_FOUND"


class ConflictError(TroupeError):
    """The request contradicts the present state: another body under one key, a closed job."""

    code = "ALREADY_EXISTS"
    http_status = 409
    reason = "CONFLICT"


class VersionNotLoadedError(TroupeError):
    """The replica does not hold the requested policy version (yet); another replica may."""

    code = "FAILED_PRECONDITION"
    http_status = 409
    retryable = True
    reason = "VERSION_NOT_LOADED"


class WeightsRejectedError(TroupeError):
    """New weights arrived damaged, and are not served."""

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
    """An infrastructure failure: a process or connection is down."""

    code = "UNAVAILABLE"
    http_status = 503
    retryable = True
    reason = "UNAVAILABLE"


class ProgramTimeoutError(UnavailableError):
    """An agent program neither asked nor ended in its time."""

    reason = "PROGRAM_TIMEOUT"


class ProgramDiedError(UnavailableError):
    """The process of an agent program died without an answer."""

    reason = "PROGRAM_DIED"


class ProgramRunTimeoutError(ProgramTimeoutError):
    """The same of a run that is never repeated: the episode is over."""

    ends_episode = True
    reason = "PROGRAM_RUN_TIMEOUT"


class ProgramRunDiedError(ProgramDiedError):
    """The same of a run that is never repeated: the episode is over."""

    ends_episode = True
    reason = "PROGRAM_RUN_DIED"


class DeadlineError(TroupeError):
    """No answer arrived in time."""

    code = "DEADLINE_EXCEEDED"
    http_status = 504
    retryable = True
    reason = "DEADLINE_EXCEEDED"


class UnimplementedError(TroupeError):
    """The service does not know the call, because it is of an older version: upgrade it."""

    code = "UNIMPLEMENTED"
    http_status = 501
    reason = "UNIMPLEMENTED"


class JobFailedError(TroupeError):
    """The job cannot continue; the message is shown to the user."""

    code = "ABORTED"
    http_status = 500
    reason = "JOB_FAILED"


class RewardFailedError(TroupeError):
    """A user's reward function raised, or it or the task gave no finite number: no score."""

    code = "ABORTED"
    reason = "REWARD_FAILED"


class FencedError(TroupeError):
    """Another process has taken over the work of this one, which must stop and change nothing."""

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
    """The class for a bare gRPC status, sent by something other than Troupe.

    CANCELLED means that the transport broke down: a caller that cancels its own call gets
    ``CancelledError`` and does not use this function.
    """
    if code.name == "CANCELLED":
        return UnavailableError
    return next((cls for cls in all_errors() if cls.code == code.name), TroupeError)
