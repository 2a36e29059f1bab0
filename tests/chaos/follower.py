"""The events of one job, collected in the background with the instants at which they came."""

import threading
import time
from contextlib import suppress

from platform_world import Platform

from troupe.clients.rest import EventDocument
from troupe.errors import TroupeError


class Follower:
    """Collects the events of a job in the background, with the instants at which they came."""

    def __init__(self, platform: Platform, job_id: str) -> None:
        self.events: list[tuple[float, EventDocument]] = []
        self._thread = threading.Thread(target=self._run, args=(platform, job_id), daemon=True)
        self._thread.start()

    @property
    def has_ended(self) -> bool:
        """The job is over, or its router was away for too long."""
        return not self._thread.is_alive()

    def has_opened(self, step: int) -> bool:
        """Whether the training round of ``step`` was opened."""
        return any(
            e.type == "round.opened" and e.data["kind"] == "train" and e.data["step"] >= step
            for _, e in list(self.events)
        )

    def first_after(self, at: float, sources: set[str]) -> float | None:
        """When the first event came that shows work after the instant ``at``."""
        quiet = {"component.restarted", "replica.left"}
        for seen, event in list(self.events):
            if seen > at and event.source in sources and event.type not in quiet:
                return seen
        return None

    def versions(self) -> list[int]:
        """Versions in the order in which they were published."""
        published = [e for _, e in self.events if e.type == "weights.published"]
        return [int(event.data["policy_version"]) for event in published]

    def ended(self) -> list[int]:
        """The versions, once the job is over; waits for the rest of its events."""
        self._thread.join(timeout=60)
        return self.versions()

    def _run(self, platform: Platform, job_id: str) -> None:
        with platform.client(retry_for_s=120) as client, suppress(TroupeError):
            for event in client.events(job_id):
                self.events.append((time.time(), event))
