"""One life for every service process: see ``troupe.serving.life``."""

from troupe.serving.life import main, replica_name, serve
from troupe.serving.membership import Membership, Reassigned, ShouldExit
from troupe.serving.service import Service
from troupe.serving.settings import ServingSettings

__all__ = [
    "Membership",
    "Reassigned",
    "Service",
    "ServingSettings",
    "ShouldExit",
    "main",
    "replica_name",
    "serve",
]
