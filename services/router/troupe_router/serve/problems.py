"""Errors in the form of OpenAI's API, which its clients turn into their own exceptions."""

import math
from typing import Any

from starlette.responses import JSONResponse

from troupe.clients.rest.errors import TooManyError
from troupe.errors import InvalidArgumentError, PromptTooLongError, TroupeError

_RETRY_AFTER_S = 1.0


def answer_to(error: TroupeError) -> JSONResponse:
    """The response of an error: OpenAI's status and document."""
    status = status_of(error)
    answer = JSONResponse(document_of(error), status_code=status)
    if error.retryable:
        after_s = error.retry_after_s if isinstance(error, TooManyError) else _RETRY_AFTER_S
        answer.headers["Retry-After"] = str(max(1, math.ceil(after_s)))
    if status == 401:
        answer.headers["WWW-Authenticate"] = 'Bearer realm="troupe"'
    return answer


def document_of(error: TroupeError) -> dict[str, Any]:
    """``{"error": {message, type, param, code}}``."""
    status = status_of(error)
    kind = "invalid_request_error" if status < 500 else "server_error"
    param = error.pointer.strip("/").replace("/", ".") if error.pointer else None
    return {
        "error": {
            "message": error.message,
            "type": "rate_limit_error" if status == 429 else kind,
            "param": param,
            "code": "model_not_found" if status == 404 and param == "model" else _code(error),
        }
    }


def status_of(error: TroupeError) -> int:
    """400 for a wrong request, as OpenAI's clients expect; else the error's own status."""
    is_wrong = isinstance(error, InvalidArgumentError) and error.http_status == 422
    return 400 if is_wrong else error.http_status


def _code(error: TroupeError) -> str:
    if isinstance(error, PromptTooLongError):
        return "context_length_exceeded"  # clients shorten their history at this word
    return "invalid_api_key" if error.http_status == 401 else error.reason.lower()
