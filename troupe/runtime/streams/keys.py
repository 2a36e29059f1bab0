"""Every Redis key name, in one place. A job's keys share a hash tag, so they are in one slot."""

PREFIX = "troupe"

JOBS = f"{PREFIX}:jobs"
"""Sorted set of job ids by creation time."""

IMPORTED = f"{PREFIX}:imported"
"""String: the run folders were looked through since this Redis was empty."""

REPLICAS = f"{PREFIX}:replicas"
"""Set of replica ids that registered and were not evicted."""

LAST_WORK = f"{PREFIX}:last-work"
"""Hash: what each known replica worked on, which outlives its heartbeat."""

WORKERS_GROUP = "workers"
"""Consumer group of the episode workers on a tickets stream."""

TRAINER_GROUP = "trainer"
"""Consumer group of the trainer on a groups stream."""


def job(job_id: str) -> str:
    """Hash: a job's record."""
    return f"{PREFIX}:{{{job_id}}}:job"


def tickets(job_id: str) -> str:
    """Stream of Ticket."""
    return f"{PREFIX}:{{{job_id}}}:tickets"


def groups(job_id: str, policy: str) -> str:
    """Stream of Group of one policy."""
    return f"{PREFIX}:{{{job_id}}}:groups:{policy}"


def episodes(job_id: str, round_id: str) -> str:
    """Stream of Episode of one round; deleted when the round is recorded."""
    return f"{PREFIX}:{{{job_id}}}:episodes:{round_id}"


def events(job_id: str) -> str:
    """Stream of Event."""
    return f"{PREFIX}:{{{job_id}}}:events"


def event_ids(job_id: str) -> str:
    """Sorted set: ids of recent events, for dedupe."""
    return f"{PREFIX}:{{{job_id}}}:event-ids"


def ledger(job_id: str) -> str:
    """Hash: the step ledger (versions, result, failure)."""
    return f"{PREFIX}:{{{job_id}}}:ledger"


def epochs(job_id: str) -> str:
    """Hash: for each role its newest epoch and who holds it."""
    return f"{PREFIX}:{{{job_id}}}:epochs"


def round_state(job_id: str, round_id: str) -> str:
    """Hash: one round's counters."""
    return f"{PREFIX}:{{{job_id}}}:round:{round_id}"


def round_done(job_id: str, round_id: str) -> str:
    """Set: tickets of the round that were completed or dropped."""
    return f"{PREFIX}:{{{job_id}}}:round:{round_id}:done"


def changes(job_id: str) -> str:
    """Stream of length 1: its newest entry names the last change of the ledger."""
    return f"{PREFIX}:{{{job_id}}}:changes"


def dead(stream: str) -> str:
    """Stream of entries that were parked, with a reason."""
    return f"{stream}:dead"


def replica(replica_id: str) -> str:
    """String with expiry: the last heartbeat of a replica (proto Replica)."""
    return f"{PREFIX}:replica:{replica_id}"


def idempotency(key: str) -> str:
    """String with expiry: what an Idempotency-Key was used for."""
    return f"{PREFIX}:idempotency:{key}"


def lease(name: str) -> str:
    """String with expiry: who holds the lease."""
    return f"{PREFIX}:lease:{name}"


def every_key_of(job_id: str) -> str:
    """Glob pattern of all keys of a job."""
    return f"{PREFIX}:{{{job_id}}}:*"
