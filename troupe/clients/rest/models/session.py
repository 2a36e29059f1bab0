"""REST models of the caller."""

from typing import Literal

from pydantic import ConfigDict, Field

from troupe.clients.rest.models.base import Document, Parameters

Scope = Literal["read", "submit", "admin", "code"]


class SessionDocument(Document):
    """Who the caller is to the router."""

    model_config = ConfigDict(
        json_schema_extra={
            "example": {"authentication": "keys", "name": "ci", "scopes": ["read", "submit"]}
        }
    )

    authentication: Literal["off", "keys"]
    """off: the router asks for no key."""
    name: str | None = None
    """Name of the key that was sent."""
    scopes: list[Scope]
    """What it may do."""


class SessionRequest(Parameters):
    """Signs a browser in."""

    key: str = Field(min_length=1, max_length=200)
    """The API key."""
