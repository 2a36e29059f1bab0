"""Plays one life of one job in this process: its parts, its fleet and its workers.

Owns what is built for the job and closed with it. Never decides whether the job is played.
"""

import asyncio
from dataclasses import dataclass

from redis.asyncio import Redis

from troupe.aio import first_to_end
from troupe.api.records.v1 import records_pb2 as pb
from troupe.episodes.build import JobParts, load_parts
from troupe.episodes.player import EpisodePlayer
from troupe.runtime.telemetry.logging import get_logger
from troupe.tasks.family import Split
from troupe_router.jobs.record import JobRecord
from troupe_router.jobs.tickets import RoundTasks, tasks_after
from troupe_router.members.store import MemberStore
from troupe_router.play.next_round import NextRound, is_reset_ahead
from troupe_router.play.routing.fleet import Fleet
from troupe_router.play.routing.ports import FleetEnv, FleetRollout
from troupe_router.play.routing.teachers import FleetTeacher
from troupe_router.play.workers import EpisodeWorkers

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class PlayOptions:
    """Options of a player process; see the settings of the same names.

    ``name`` is the process's name; with ``job_id`` it plays only this job, else every job.
    """

    name: str = "worker"

    claim_idle_s: float = 5.0
    generate_calls: int = 8192
    series_linger_s: float = 120.0
    job_id: str = ""


class JobPlayer:
    """One job, from now until it is cancelled."""

    def __init__(
        self, record: JobRecord, redis: Redis, members: MemberStore, options: PlayOptions
    ) -> None:
        self._record = record
        self._redis = redis
        self._members = members
        self._options = options
        self._workers: EpisodeWorkers | None = None
        self._is_draining = False

    async def run(self) -> None:
        """Play tickets until cancelled; raises errors that are not one ticket's fault.

        Raises:
            SpecInvalidError: what the spec names is not installed here.
        """
        parts = await asyncio.to_thread(load_parts, self._record.spec)
        fleet = Fleet(self._record.job_id, self._record.spec, self._members)
        try:
            self._workers = await self._make_workers(parts, fleet)
            if self._is_draining:
                return
            await first_to_end(self._workers.run(), fleet.watch())
        finally:
            await fleet.close()

    async def drain(self) -> None:
        """Claim no more tickets, and wait until those being played have ended."""
        self._is_draining = True
        if self._workers is not None:
            await self._workers.drain()

    async def _make_workers(self, parts: JobParts, fleet: Fleet) -> EpisodeWorkers:
        spec = self._record.spec
        rollout = FleetRollout(fleet, max_calls=self._options.generate_calls)
        player = parts.player(rollout, FleetEnv(fleet), FleetTeacher(fleet))
        return EpisodeWorkers(
            self._redis,
            self._record.job_id,
            player,
            spec.limits,
            claim_idle_s=self._options.claim_idle_s,
            max_staleness=spec.max_staleness,
            name=self._options.name,
            next_round=await self._next_round(parts, player),
        )

    async def _next_round(self, parts: JobParts, player: EpisodePlayer) -> NextRound | None:
        """What resets the round ahead; None where that is not done, or the tasks are not here."""
        spec = self._record.spec
        if not is_reset_ahead(parts):
            return None
        try:
            sizes = await asyncio.to_thread(_sizes, parts)
        except Exception as error:  # only env services and the router need the tasks' data
            job_id, words = self._record.job_id, f"{type(error).__name__}: {error}"
            _log.info("next_round.off", job_id=job_id, error=words)
            return None

        def following(ticket: pb.Ticket) -> RoundTasks | None:
            return tasks_after(spec, ticket.step, sizes.__getitem__)

        return NextRound(player, following, at_most=spec.limits.episodes_in_flight)


def _sizes(parts: JobParts) -> dict[Split, int | None]:
    """Numbers of tasks of the splits that are played; reads the tasks' data where they have any."""
    taskset, evaluation = parts.family.taskset(), parts.spec.eval
    splits: set[Split] = {"train", *((evaluation.split,) if evaluation.num_tasks else ())}
    return {split: taskset.size(split) for split in splits}
