"""A version from the learners to the replicas and into the ledger, for every policy.

Owns the rule that a trainer which went back to a checkpoint does not take replicas back: until it
has caught up with the committed version it publishes nothing.
"""

from pathlib import Path

from services.trainer.export import export_version
from services.trainer.progress import Progress
from services.trainer.publish import Publisher
from services.trainer.team import Team
from troupe.streams.ledger import StepLedger
from troupe.telemetry.logging import get_logger

_log = get_logger(__name__)


class Versions:
    """Publishes and commits versions of one job."""

    def __init__(
        self,
        job_id: str,
        team: Team,
        publisher: Publisher,
        ledger: StepLedger,
        folder: Path,
        progress: Progress,
    ) -> None:
        self._job_id = job_id
        self._team = team
        self._publisher = publisher
        self._ledger = ledger
        self._folder = folder
        self._progress = progress

    async def publish(self, version: int) -> None:
        """Make the learners' weights ``version`` of every policy.

        Raises:
            JobFailedError: it did not reach every replica; the old version serves on.
        """
        committed = await self._ledger.versions()
        for policy, learner in self._team.learners.items():
            if version < committed.get(policy, 0):
                _log.info("versions.catching_up", policy=policy, version=version)
                continue
            export = await self._team.on_thread(
                lambda it=learner: export_version(it, version, self._folder, job_id=self._job_id)
            )
            await self._publisher.publish(export)
            await self._ledger.commit_version(policy, version, export.manifest.tensor_digest)
            self._progress.policy_versions[policy] = version
            await self._publisher.forget_before(policy, version)
