"""Clients of the four services. The REST client is ``troupe.clients.rest``."""

from troupe.clients.env import EnvClient
from troupe.clients.rollout import RolloutClient, RolloutStatus
from troupe.clients.router import RouterClient
from troupe.clients.trainer import TrainerClient, TrainerStatus

__all__ = [
    "EnvClient",
    "RolloutClient",
    "RolloutStatus",
    "RouterClient",
    "TrainerClient",
    "TrainerStatus",
]
