"""Base classes of the REST API's models, and the model of an error.

Each model is declared once, in this package: the router builds its answers from it, FastAPI
derives OpenAPI from it, and the clients parse it. Answers are called ``...Document``, ``...Page``
or ``...List``, parameters ``...Query``, bodies ``...Change`` or ``...Request``. Instants are Unix
seconds.
"""

from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict


class Document(BaseModel):
    """Base of every answer: frozen; fields of a newer router are left out."""

    model_config = ConfigDict(frozen=True, extra="ignore", use_attribute_docstrings=True)


class Parameters(BaseModel):
    """Base of query parameters and bodies: a name that is not known is refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


def _writable(value: Any) -> Any:
    """``value`` with lone surrogates replaced, which UTF-8 cannot encode."""
    if isinstance(value, dict):
        return {_writable(key): _writable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_writable(item) for item in value]
    if isinstance(value, str) and not value.isascii():
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return value


JsonObject = Annotated[dict[str, Any], BeforeValidator(_writable)]
"""What tasks, models and services wrote, of any form: JSON may escape half a character."""


class FaultDocument(Document):
    """One thing that is wrong in a request."""

    pointer: str
    """JSON pointer (RFC 6901) into the body, or to the parameter; empty: the whole body."""
    message: str
    """What is wrong, and what to do."""


class ProblemDocument(Document):
    """An error (RFC 9457)."""

    type: str
    """urn:troupe:<reason>."""
    title: str
    """The reason in words."""
    status: int
    """The HTTP status."""
    detail: str
    """What was wrong, where, and what to do."""
    reason: str
    """Stable name: NOT_FOUND, CONFLICT, SPEC_INVALID, ..."""
    pointer: str | None = None
    """The first fault's pointer."""
    errors: list[FaultDocument] = []
    """Every fault that was found."""
