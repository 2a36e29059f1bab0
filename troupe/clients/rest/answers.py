"""Parses a router's answers: documents, events, archives, and problem+json as a TroupeError.

Never calls a router.
"""

import contextlib
import json
import ssl
from collections.abc import Generator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import httpx
from httpx_sse import ServerSentEvent
from pydantic import BaseModel, ValidationError

from troupe.clients.rest.errors import ForbiddenError, TooManyError, UnauthenticatedError
from troupe.clients.rest.models.events import EventDocument
from troupe.durable import put
from troupe.errors import (
    ConflictError,
    DeadlineError,
    InvalidArgumentError,
    NotFoundError,
    OverloadedError,
    TroupeError,
    UnavailableError,
    error_for_reason,
)
from troupe.spec.issues import Issue, SpecInvalidError

_M = TypeVar("_M", bound=BaseModel)
_BY_STATUS: Mapping[int, type[TroupeError]] = {
    401: UnauthenticatedError,
    403: ForbiddenError,
    404: NotFoundError,
    409: ConflictError,
    422: InvalidArgumentError,
    429: OverloadedError,
    503: UnavailableError,
    504: DeadlineError,
}


def document_of(response: httpx.Response, base_url: str) -> Any:
    """The JSON object of an answer (None for 204); raises the error that it describes."""
    if not response.is_success:
        raise problem_of(response)
    if response.status_code == 204:
        return None
    try:
        document = response.json()
    except ValueError:
        document = None
    if not isinstance(document, dict):
        raise TroupeError(
            f"What answers at {base_url} is not a Troupe router (its answer is not a JSON "
            "object); check the port, or name the router with --url or TROUPE_REST_URL."
        )
    return document


def read(model: type[_M], document: Any) -> _M:
    """``document`` as a ``model``; raises TroupeError when it does not fit."""
    try:
        return model.model_validate(document)
    except ValidationError as error:
        raise TroupeError(
            f"the router's answer is not a {model.__name__} ({error.error_count()} faults, the "
            f"first: {error.errors()[0]['msg']}); router and command must be of one version"
        ) from error


def event_of(event: ServerSentEvent) -> EventDocument:
    """One event of a stream; raises TroupeError for one that cannot be read."""
    try:
        document = json.loads(event.data)
        envelope = {k: v for k, v in document.items() if k in ("type", "occurred_at", "source")}
        envelope.setdefault("type", event.event)
        data = document["data"] if isinstance(document.get("data"), dict) else document
        return EventDocument(id=event.id, data=data, **envelope)
    except (ValueError, AttributeError) as error:
        raise TroupeError(f"the router sent an event that cannot be read: {error}") from error


@contextlib.contextmanager
def draft_of(target: Path) -> Generator[BinaryIO]:
    """A file that becomes ``target`` when the block succeeds, and is removed when it fails.

    Raises:
        InvalidArgumentError: ``target`` can't be written.
    """
    if target.is_dir():
        raise InvalidArgumentError(f"{target} is a folder; give the path of a file in it.")
    draft = target.with_name(f".{target.name}.part")
    try:
        with draft.open("wb") as file:
            yield file
        put(draft, target)
    except OSError as error:
        raise InvalidArgumentError(
            f"{target} can't be written ({error.strerror}); give a path on a disk with free space."
        ) from error
    finally:
        draft.unlink(missing_ok=True)


def problem_of(response: httpx.Response) -> TroupeError:
    """The error of an answer that is not the one asked for: problem+json (RFC 9457), a redirect."""
    if response.has_redirect_location:
        location = response.headers["Location"].partition("?")[0]
        return TroupeError(
            f"What answers at {response.url} is not a Troupe router (it redirects to "
            f"{location[:200]}); name the router itself with --url or TROUPE_REST_URL."
        )
    try:
        document: Any = response.json()
    except ValueError:
        document = None
    problem: dict[str, Any] = document if isinstance(document, dict) else {}
    message = str(problem.get("detail") or problem.get("title") or response.text[:300]).strip()
    message = message or f"HTTP status {response.status_code} from {response.url}"
    if response.status_code == 401:
        message += " Give a key with TROUPE_API_KEY."
    errors = problem.get("errors")
    if response.status_code == 422 and isinstance(errors, list) and errors:
        issues = [
            Issue(str(e.get("pointer", "")), str(e.get("message") or e.get("detail") or "invalid"))
            for e in errors
            if isinstance(e, dict)
        ]
        if problem.get("reason") == InvalidArgumentError.reason and issues:
            faults = "; ".join(f"{issue.pointer}: {issue.message}" for issue in issues)
            return InvalidArgumentError(faults, pointer=issues[0].pointer)
        return SpecInvalidError(issues or [Issue("", message)])
    cls = error_for_reason(str(problem.get("reason", ""))) or _BY_STATUS.get(
        response.status_code, TroupeError
    )
    if issubclass(cls, SpecInvalidError):
        cls = InvalidArgumentError
    if issubclass(cls, TooManyError):
        after = response.headers.get("Retry-After", "")
        return cls(message, retry_after_s=float(after) if after.isdecimal() else 1.0)
    return cls(message, pointer=problem.get("pointer"))


def unreachable(base_url: str, error: Exception, *, is_unsure: bool = False) -> UnavailableError:
    """The message for a router that does not answer; ``is_unsure``: it may have acted."""
    if isinstance(error, UnavailableError):
        return error
    if isinstance(error, httpx.ReadTimeout):
        limit_s: float = error.request.extensions["timeout"]["read"]
        return UnavailableError(
            f"The router at {base_url} did not answer within {limit_s:g} s. It may be busy, and "
            "may still do what was asked: look before you ask again, or give the client a longer "
            "timeout_s."
        )
    if is_unsure:
        advice = "The request may have been carried out: look before you send it again."
    elif is_distrusted(error):
        advice = "Name the authority of its certificate with TROUPE_REST_CA."
    elif _is_beneath(error, ssl.SSLError) and not _is_beneath(error, ssl.SSLEOFError):
        advice = "It may not speak https: give http://host:port with --url or TROUPE_REST_URL."
    elif base_url.startswith("http://") and isinstance(
        error, (httpx.RemoteProtocolError, httpx.ReadError)
    ):
        advice = "If it speaks https, give https://host:port with --url or TROUPE_REST_URL."
    else:
        advice = "Start one with `troupe up`, or name another with --url or TROUPE_REST_URL."
    return UnavailableError(
        f"No router answers at {base_url} ({type(error).__name__}: {error}). {advice}"
    )


def is_distrusted(error: Exception) -> bool:
    """True when the router's certificate is not trusted, which waiting does not fix."""
    return _is_beneath(error, ssl.SSLCertVerificationError)


def _is_beneath(error: Exception, kind: type[Exception]) -> bool:
    """Whether ``error`` or one of its causes is of ``kind``."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, kind):
        cause = cause.__cause__ or cause.__context__
    return cause is not None


def not_a_url(base_url: str, error: Exception) -> InvalidArgumentError:
    """The message for a base URL that is not a URL."""
    return InvalidArgumentError(
        f"{base_url!r} is not a URL of a router ({error}); give http://host:port with "
        "--url or TROUPE_REST_URL."
    )


def trusted(tls_ca: Path | None) -> ssl.SSLContext | bool:
    """The trusted authorities; raises InvalidArgumentError for a file without certificates."""
    if tls_ca is None:
        return True
    try:
        return ssl.create_default_context(cafile=tls_ca)
    except (OSError, ssl.SSLError) as error:
        raise InvalidArgumentError(
            f"{tls_ca} is not a file of certificates ({error}); "
            "check TROUPE_REST_CA (or TROUPE_TLS_CA)"
        ) from error


def connection(
    base_url: str, api_key: str, timeout_s: float, tls_ca: Path | None
) -> dict[str, Any]:
    """Arguments of httpx's clients; they ignore the environment's proxies: a router is near."""
    return {
        "base_url": base_url,
        "timeout": timeout_s,
        "trust_env": False,
        "headers": {"Authorization": f"Bearer {api_key}"} if api_key else {},
        "verify": trusted(tls_ca),
    }
