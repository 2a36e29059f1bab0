"""The router's REST API as typed calls: ``RestClient`` blocks, ``AsyncRestClient`` is awaited."""

from troupe.clients.rest.async_client import AsyncRestClient
from troupe.clients.rest.client import RestClient
from troupe.clients.rest.models import TERMINAL, Job, JobEvent, JobState
from troupe.clients.rest.sse import parse_sse

__all__ = [
    "TERMINAL",
    "AsyncRestClient",
    "Job",
    "JobEvent",
    "JobState",
    "RestClient",
    "parse_sse",
]
