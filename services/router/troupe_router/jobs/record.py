"""A job's record: what the router knows of one job, as it is kept in one Redis hash."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from dataclasses import fields as dataclass_fields
from functools import lru_cache
from pathlib import Path
from typing import Any

from troupe.errors import TroupeError
from troupe.runtime.streams.versions import (
    RECORD_VERSION,
    VERSION_FIELD,
    NewerRecordError,
    check_version,
)
from troupe.spec import JobSpec, SpecInvalidError, parse_spec
from troupe.spec.job import RolloutSpec
from troupe.spec.pools import num_replicas
from troupe_router.jobs.state import ACTIVE, FINISHED, STATES, JobState

_SHARES_POOLS = {"pools": "shared"}
"""Field of a record whose job was begun by a version in which policies can share a pool."""


@dataclass(frozen=True, slots=True)
class JobRecord:
    """One job. ``spec`` is resolved; instants are Unix seconds, 0 when they have not come.

    ``priority``: higher starts first; ``owner`` is the name of the API key that submitted it.
    ``life`` counts from 1 and grows with every resume, the last at ``resumed_at``; ``step`` is the
    number of learned steps; ``reason`` says why the state was reached. ``is_pinned``: retention
    keeps its run folder.
    """

    job_id: str
    spec: JobSpec
    run_dir: Path
    state: JobState
    created_at: float
    started_at: float = 0.0
    ended_at: float = 0.0
    reason: str = ""
    life: int = 1
    step: int = 0
    priority: int = 0
    owner: str = ""
    is_pinned: bool = False
    resumed_at: float = 0.0

    @property
    def replicas(self) -> int:
        """Rollout replicas that it takes from the quota."""
        return num_replicas(self.spec)

    @property
    def is_active(self) -> bool:
        """Whether processes work for the job."""
        return self.state in ACTIVE

    @property
    def is_finished(self) -> bool:
        """Whether nothing happens any more."""
        return self.state in FINISHED

    def to_fields(self) -> dict[str, str]:
        """The hash fields."""
        names = (field.name for field in dataclass_fields(self) if field.name != "spec")
        fields = {name: str(getattr(self, name)) for name in names}
        marks = {VERSION_FIELD.decode(): str(RECORD_VERSION), **_SHARES_POOLS}
        return {**fields, **marks, "spec": self.spec.model_dump_json()}

    @property
    def spec_as_begun(self) -> str:
        """The spec as JSON with the fields that it had when the job began.

        Its workers may be of the version before this one, and refuse a field that is new. They are
        told their policies, and need no ``rollout``.
        """
        return self.spec.model_dump_json(exclude_unset=True, exclude={"rollout"})


def record_from_fields(fields: Mapping[bytes, bytes]) -> JobRecord:
    """The record in a hash.

    Raises:
        NewerRecordError: a newer version's, or with a spec that this version cannot run.
        TroupeError: the hash is no record.
    """
    check_version(fields, f"the record of job '{fields.get(b'job_id', b'').decode()}'")
    text = {key.decode(): value.decode() for key, value in fields.items()}
    state = text.get("state", "")
    if state not in STATES or "spec" not in text:
        raise TroupeError(f"the Redis record of job '{text.get('job_id')}' is not readable")
    return JobRecord(
        job_id=text["job_id"],
        spec=_stored_spec(text["spec"], shares_pools=_SHARES_POOLS.items() <= text.items()),
        run_dir=Path(text["run_dir"]),
        state=state,
        created_at=float(text["created_at"]),
        started_at=float(text["started_at"]),
        ended_at=float(text["ended_at"]),
        reason=text["reason"],
        life=int(text["life"]),
        step=int(text.get("step", 0)),
        priority=int(text.get("priority", 0)),
        owner=text.get("owner", ""),
        is_pinned=text.get("is_pinned") == str(True),
        resumed_at=float(text.get("resumed_at", 0.0)),
    )


@lru_cache(maxsize=256)
def _stored_spec(text: str, *, shares_pools: bool) -> JobSpec:
    """Reading a record is frequent and a spec never changes: one text is parsed once.

    A job of a version without pools keeps the replicas that it has: they serve one policy each.
    """
    try:
        spec = parse_spec(json.loads(text), source="the stored spec")
    except SpecInvalidError as error:
        # A router stores only what it can read itself, so one of another version stored this.
        raise NewerRecordError(
            f"{error.message}\nAnother version of Troupe, or one with other plug-ins, began this "
            "job. It was left as it is: run this process from that version, or let it end there."
        ) from error
    if shares_pools:
        return spec
    return spec.model_copy(update={"rollout": RolloutSpec(per_policy=True)})


def spec_document(spec: JobSpec) -> dict[str, Any]:
    """The spec as plain values."""
    return spec.model_dump(mode="json")
