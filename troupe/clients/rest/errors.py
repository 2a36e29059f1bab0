"""Errors that only the HTTP API has: authentication, size, media type and rate."""

from troupe.errors import DeadlineError, ForbiddenError, InvalidArgumentError, OverloadedError

__all__ = [
    "ForbiddenError",
    "MediaTypeError",
    "SlowBodyError",
    "TooLargeError",
    "TooManyError",
    "UnauthenticatedError",
]


class UnauthenticatedError(InvalidArgumentError):
    """No key, or one that is not known."""

    code = "UNAUTHENTICATED"
    http_status = 401
    reason = "UNAUTHENTICATED"


class TooLargeError(InvalidArgumentError):
    """The request's body is larger than the router accepts."""

    http_status = 413
    reason = "BODY_TOO_LARGE"


class SlowBodyError(DeadlineError):
    """The request's body comes too slowly, or not at all."""

    http_status = 408
    reason = "BODY_TOO_SLOW"


class MediaTypeError(InvalidArgumentError):
    """The request's body is of a kind that the router does not read."""

    http_status = 415
    reason = "MEDIA_TYPE_UNKNOWN"


class TooManyError(OverloadedError):
    """The caller sends too many requests; ``retry_after_s`` says when it may send again."""

    reason = "RATE_LIMITED"

    def __init__(
        self, message: str, *, pointer: str | None = None, retry_after_s: float = 1.0
    ) -> None:
        super().__init__(message, pointer=pointer)
        self.retry_after_s = retry_after_s
