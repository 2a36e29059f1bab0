"""Runs every service process in the same way: see ``troupe.runtime.serving.life``."""

from troupe.runtime.serving.life import main, replica_name, serve
from troupe.runtime.serving.membership import Membership, Reassigned, ShouldExit
from troupe.runtime.serving.service import Service
from troupe.runtime.serving.settings import ServingSettings

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
