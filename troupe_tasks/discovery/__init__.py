"""Scientific discovery: an experimenter measures, a theorist names the law."""

from troupe_tasks.discovery.family import Discovery, DiscoveryParams

__all__ = ["Discovery", "DiscoveryParams"]
