"""REST models of the router's health."""

from typing import Literal

from troupe.clients.rest.models.base import Document


class HealthDocument(Document):
    """The router's own health."""

    status: Literal["ok"]
    """Always ok; anything else is a problem."""
