"""How many jobs and replicas there are, as gauges. Every router shows the same numbers."""

import asyncio
from collections import Counter
from typing import NoReturn

from redis.exceptions import RedisError

from troupe.runtime.telemetry import metrics
from troupe.runtime.telemetry.logging import get_logger
from troupe.runtime.transient import is_of_code
from troupe.spec.pools import rollout_pools
from troupe_router.jobs.state import STATES
from troupe_router.jobs.store import JobStore
from troupe_router.members.store import MemberStore, kind_name

_log = get_logger(__name__)
_KINDS = ("rollout", "env", "trainer")


async def count(store: JobStore, members: MemberStore) -> None:
    """Set the gauges once."""
    jobs = Counter((await store.states()).values())
    for state in STATES:
        metrics.ROUTER_JOBS.labels(state).set(jobs[state])
    living = await members.all()
    replicas = Counter(kind_name(member.replica) for member in living)
    for kind in _KINDS:
        metrics.ROUTER_REPLICAS.labels(kind).set(replicas[kind])
    serving = Counter(
        (member.job_id, p.policy)
        for member in living
        if member.replica.is_serving
        for p in member.replica.policies
    )
    unfinished = await store.unfinished()
    metrics.ROUTER_POLICY_REPLICAS.clear()  # of jobs that have ended; no wait until all are set
    for job in unfinished:
        for pool in rollout_pools(job.spec) if job.is_active else ():
            for policy in pool.policies:
                gauge = metrics.ROUTER_POLICY_REPLICAS.labels(job.job_id, pool.name, policy)
                gauge.set(serving[job.job_id, policy])


async def keep_counting(store: JobStore, members: MemberStore, *, every_s: float) -> NoReturn:
    """Set the gauges until cancelled; Redis may be away meanwhile."""
    while True:
        try:
            await count(store, members)
        except Exception as error:
            if not isinstance(error, RedisError) and is_of_code(error):
                raise
            _log.warning("census.failed", error=str(error))
        await asyncio.sleep(every_s)
