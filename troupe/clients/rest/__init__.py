"""Typed clients of the router's REST API: ``RestClient`` blocks, ``AsyncRestClient`` is async."""

from troupe.clients.rest.async_client import AsyncRestClient
from troupe.clients.rest.client import RestClient
from troupe.clients.rest.models.events import EventDocument
from troupe.clients.rest.models.jobs import TERMINAL, JobDocument, JobState

__all__ = [
    "TERMINAL",
    "AsyncRestClient",
    "EventDocument",
    "JobDocument",
    "JobState",
    "RestClient",
]
