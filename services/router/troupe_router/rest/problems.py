"""Errors as RFC 9457 problem+json: one handler for Troupe's tree, one for the framework's."""

import math
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from redis.exceptions import OutOfMemoryError, RedisError
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse
from starlette.routing import Match

from troupe.clients.rest.errors import TooManyError
from troupe.clients.rest.models.base import FaultDocument, ProblemDocument
from troupe.errors import OverloadedError, TroupeError, UnavailableError
from troupe.runtime.disk_space import DiskSpace
from troupe.runtime.telemetry.logging import get_logger
from troupe.spec import SpecInvalidError
from troupe.spec.issues import pointer_of

_log = get_logger(__name__)
_RETRY_AFTER_S = 1.0
_METHODS = ("DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT")
MEDIA_TYPE = "application/problem+json"


def install(app: FastAPI, disk: DiskSpace) -> None:
    """Answer every error of ``app`` as problem+json; one that passes says what ``disk`` lacks."""

    async def on_troupe(_: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, TroupeError)
        if error.retryable and disk.sentence:
            error = UnavailableError(f"{disk.sentence} ({error.message})")
        return answer_to(error)

    async def on_request(_: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, RequestValidationError)
        issues = [
            FaultDocument(pointer=pointer_of(e["loc"]), message=str(e["msg"]))
            for e in error.errors()
        ]
        return problem(422, "INVALID_ARGUMENT", "the request is not valid", errors=issues)

    async def on_http(request: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, HTTPException)
        path, status = request.url.path[:200], error.status_code
        reason, detail = {
            404: ("NOT_FOUND", f"there is no path {path}; /openapi.json lists all"),
            405: ("METHOD_NOT_ALLOWED", f"{path} has no {request.method}; see Allow"),
        }.get(status, ("HTTP", str(error.detail)))
        answer = problem(status, reason, detail)
        answer.headers.update(error.headers or {})
        if status == 405:
            answer.headers["Allow"] = ", ".join(_allowed(request))
        return answer

    async def on_redis(request: Request, error: Exception) -> JSONResponse:
        if isinstance(error, OutOfMemoryError):
            full = f"the router's Redis is full ({error}): raise its maxmemory, or delete old jobs"
            return await on_troupe(request, OverloadedError(full))
        away = UnavailableError(f"the router's Redis does not answer ({error})")
        return await on_troupe(request, away)

    async def on_bug(request: Request, error: Exception) -> JSONResponse:
        _log.error("rest.crashed", path=request.url.path, exc_info=error)
        return problem(500, "INTERNAL", f"unexpected {type(error).__name__}; see the router's log")

    app.add_exception_handler(TroupeError, on_troupe)
    app.add_exception_handler(RequestValidationError, on_request)
    app.add_exception_handler(HTTPException, on_http)
    app.add_exception_handler(RedisError, on_redis)
    app.add_exception_handler(Exception, on_bug)


def answer_to(error: TroupeError) -> JSONResponse:
    """The problem document of an error."""
    answer = problem(error.http_status, error.reason, error.message, **_details(error))
    if error.http_status == 429:
        after_s = error.retry_after_s if isinstance(error, TooManyError) else _RETRY_AFTER_S
        answer.headers["Retry-After"] = str(max(1, math.ceil(after_s)))
    if error.http_status == 401:
        answer.headers["WWW-Authenticate"] = 'Bearer realm="troupe"'
    return answer


def problem(status: int, reason: str, detail: str, **more: Any) -> JSONResponse:
    """One problem document. ``reason`` is stable; ``detail`` is for people."""
    document = ProblemDocument(
        type=f"urn:troupe:{reason.lower().replace('_', '-')}",
        title=reason.replace("_", " ").capitalize(),
        status=status,
        detail=detail,
        reason=reason,
        **more,
    )
    content = document.model_dump(exclude_unset=True)
    return JSONResponse(content, status_code=status, media_type=MEDIA_TYPE)


def _allowed(request: Request) -> list[str]:
    """The methods that the request's path has: of every route, where the error names one's."""
    return [
        method
        for method in _METHODS
        if any(
            route.matches({**request.scope, "method": method})[0] is Match.FULL
            for route in request.app.routes
        )
    ]


def _details(error: TroupeError) -> dict[str, Any]:
    if isinstance(error, SpecInvalidError):
        issues = [FaultDocument(pointer=i.pointer, message=i.message) for i in error.issues]
        return {"errors": issues, "pointer": error.pointer}
    if error.pointer is not None:
        fault = FaultDocument(pointer=error.pointer, message=error.message)
        return {"errors": [fault], "pointer": error.pointer}
    return {"errors": []} if error.http_status == 422 else {}
