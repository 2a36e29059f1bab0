"""Reports the outcome of a push: each replica's answer, the time of each phase, and errors.

Owns the records, and their way into the job's events and the metrics. Never decides anything, and
its own failure never fails a push.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Literal, Protocol

from troupe.errors import TroupeError
from troupe.runtime.streams.events import EventLog
from troupe.runtime.telemetry import metrics
from troupe.runtime.telemetry.logging import get_logger
from troupe_trainer.checkpoint.export import Export

_log = get_logger(__name__)
_TENSOR = "/tensors/"
_OUTCOMES = ("published", "refused", "caught_up")


@dataclass(slots=True)
class PushResult:
    """One version on one replica. ``canary_error`` is the largest difference of a logprob, nats,
    and ``canary_limit`` the largest that is taken.

    ``transfer_s`` ends when the replica has the bytes, ``stage_s`` when its engine holds them,
    ``canary_s`` when it has answered with them, ``activate_s`` when it serves them.
    """

    replica: str
    tensor_digest: str = ""
    transfer_s: float = 0.0
    stage_s: float = 0.0
    canary_s: float = 0.0
    activate_s: float = 0.0
    canary_error: float = 0.0
    canary_limit: float = 0.0


@dataclass(frozen=True, slots=True)
class PushRefusal:
    """A version that a replica refused. ``tensor`` is empty where none is at fault.

    ``canary_error`` as in ``PushResult``; None where the canary was not asked. ``cause`` is
    ``canary`` where that error is beyond the limit.
    """

    replica: str
    tensor: str
    reason: str
    canary_error: float | None = None
    cause: Literal["canary", "other"] = "other"


class PushListener(Protocol):
    """Receives the outcomes of pushes."""

    async def published(self, export: Export, via: str, results: Sequence[PushResult]) -> None:
        """Every replica serves the version."""
        ...

    async def refused(self, export: Export, via: str, refusal: PushRefusal) -> None:
        """A replica refused the version for good; the job fails, unless the replica came late."""
        ...

    async def caught_up(self, export: Export, via: str, result: PushResult) -> None:
        """A replica that joined or returned has the current version."""
        ...


class NoPushListener:
    """Ignores all outcomes; for tools and tests."""

    async def published(self, export: Export, via: str, results: Sequence[PushResult]) -> None:
        """See ``PushListener``."""

    async def refused(self, export: Export, via: str, refusal: PushRefusal) -> None:
        """See ``PushListener``."""

    async def caught_up(self, export: Export, via: str, result: PushResult) -> None:
        """See ``PushListener``."""


class PushEvents:
    """Records metrics and emits ``weights.published``, ``.refused`` and ``.caught_up``."""

    def __init__(self, job_id: str, events: EventLog, policies: Iterable[str]) -> None:
        self._job_id = job_id
        self._events = events
        metrics.start_at_zero(metrics.WEIGHTS_PUSHES, [job_id], policies, _OUTCOMES)

    async def published(self, export: Export, via: str, results: Sequence[PushResult]) -> None:
        """See ``PushListener``."""
        for result in results:
            self._measure(export, result)
        self._count(export, "published")
        replicas = [_rounded(result) for result in results]
        await self._emit(
            "weights.published", {**_version_fields(export, via), "replicas": replicas}
        )

    async def refused(self, export: Export, via: str, refusal: PushRefusal) -> None:
        """See ``PushListener``."""
        data = {**_version_fields(export, via), **asdict(refusal)}
        if (error := refusal.canary_error) is not None:
            labels = (self._job_id, export.manifest.policy, refusal.replica)
            metrics.WEIGHTS_CANARY_ERROR.labels(*labels).set(error)
            data["canary_error"] = float(f"{error:.4g}") if math.isfinite(error) else None
        self._count(export, "refused")
        await self._emit("weights.refused", data)

    async def caught_up(self, export: Export, via: str, result: PushResult) -> None:
        """See ``PushListener``."""
        self._measure(export, result)
        self._count(export, "caught_up")
        await self._emit("weights.caught_up", {**_version_fields(export, via), **_rounded(result)})

    def _measure(self, export: Export, result: PushResult) -> None:
        labels = (self._job_id, export.manifest.policy, result.replica)
        for phase, seconds in (
            ("export", export.export_s),
            ("transfer", result.transfer_s),
            ("stage", result.stage_s),
            ("canary", result.canary_s),
            ("activate", result.activate_s),
        ):
            metrics.WEIGHTS_PHASE_SECONDS.labels(*labels, phase).set(seconds)
        metrics.WEIGHTS_CANARY_ERROR.labels(*labels).set(result.canary_error)

    def _count(self, export: Export, outcome: str) -> None:
        metrics.WEIGHTS_PUSHES.labels(self._job_id, export.manifest.policy, outcome).inc()

    async def _emit(self, type: str, data: dict[str, object]) -> None:
        try:
            await self._events.emit(type, data)
        except TroupeError as error:
            _log.warning("publisher.event_lost", type=type, error=error.message)


def push_refusal(result: PushResult, error: TroupeError) -> PushRefusal:
    """Why a replica refused; the tensor travels in the error's pointer."""
    pointer = error.pointer or ""
    tensor = pointer.removeprefix(_TENSOR) if pointer.startswith(_TENSOR) else ""
    has_canary = result.canary_s > 0
    # Not `>`: an error that is no number is beyond every limit.
    is_beyond = has_canary and not result.canary_error <= result.canary_limit
    return PushRefusal(
        result.replica,
        tensor,
        error.message,
        result.canary_error if has_canary else None,
        "canary" if is_beyond else "other",
    )


def _version_fields(export: Export, via: str) -> dict[str, object]:
    manifest = export.manifest
    return {
        "policy": manifest.policy,
        "policy_version": manifest.policy_version,
        "kind": manifest.kind,
        "via": via,
        "size_bytes": manifest.size_bytes,
        "tensor_digest": manifest.tensor_digest,
        "export_s": round(export.export_s, 4),
    }


def _rounded(result: PushResult) -> dict[str, object]:
    return {
        name: float(f"{value:.4g}") if isinstance(value, float) else value
        for name, value in asdict(result).items()
    }
