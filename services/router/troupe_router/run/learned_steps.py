"""The trainers' reports by step: one trainer's, or those of all per-policy trainers merged.

Owns which reports have arrived, and in which life of the job; troupe/runtime/step_report merges
them. Pure; never waits.
"""

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from troupe.api.records.v1.records_pb2 import Event
from troupe.runtime.step_report.trainer import TrainerPart, over_policies
from troupe.spec.job import JobSpec
from troupe_router.jobs.record import JobRecord


class LearnedSteps:
    """The reports of a job's trainers by step, as they come in."""

    def __init__(self, spec: JobSpec) -> None:
        self._trainers = spec.trainers()
        self._reports: defaultdict[int, dict[str, dict[str, Any]]] = defaultdict(dict)

    def add(self, report: Mapping[str, Any]) -> None:
        """Add one trainer's report of one step; a later report updates the earlier one."""
        trainer = str(report.get("policy", ""))
        self._reports[int(report["step"])].setdefault(trainer, {}).update(report)

    def is_reported(self, step: int) -> bool:
        """Whether every trainer has reported ``step``."""
        reports = self._reports.get(step, {})
        return all(policy in reports for policy in self._trainers)

    def is_passed(self, step: int) -> bool:
        """Whether every trainer has reported ``step`` or a later one.

        One that was killed after it committed a version learns the step again, and reports it then.
        """
        later = [reports for of, reports in self._reports.items() if of >= step]
        return {*self._trainers} <= {trainer for reports in later for trainer in reports}

    def of(self, step: int) -> TrainerPart | None:
        """The merged reports of ``step``; None while there is none."""
        reports = self._reports.get(step, {})
        parts = [
            TrainerPart.from_wire(reports[policy]) for policy in self._trainers if policy in reports
        ]
        if not parts:
            return None
        return parts[0] if self._trainers == ("",) else over_policies(parts)

    def forget(self, step: int) -> None:
        """Drop the reports of ``step``."""
        self._reports.pop(step, None)


class ReportsByLife:
    """The reports of a job's trainers, in this life of the job and before it.

    A job that failed goes on from a checkpoint, and learns again the steps after it: what was said
    of them is about weights that are gone.
    """

    def __init__(self, job: JobRecord) -> None:
        self._job = job
        self._all, self._new = LearnedSteps(job.spec), LearnedSteps(job.spec)
        self._has_begun = False
        self._earlier: dict[str, int] = {}

    def add(self, event: Event, data: Mapping[str, Any]) -> None:
        """Add an event of the job, in the order of the stream; only those of trainers matter."""
        is_new = event.occurred_at >= self._job.started_at
        # A trainer's clock may be behind, but a life begins with a router's event.
        self._has_begun |= is_new and event.source == "router"
        is_new |= self._has_begun
        if event.type == "step.learned":
            for reports in (self._all, self._new) if is_new else (self._all,):
                reports.add(data)
        if is_new:
            self._earlier.pop(event.event_id, None)
        elif event.source == "trainer" and isinstance(step := data.get("step"), int):
            self._earlier[event.event_id] = step

    def of_round(self, opened_at: float) -> LearnedSteps:
        """Those that may be of a step whose round was opened then."""
        return self._new if opened_at >= self._job.started_at else self._all

    def earlier_ids(self, step: int) -> list[str]:
        """Events about steps from ``step`` on that trainers emitted in earlier lives alone."""
        return [event_id for event_id, of in self._earlier.items() if of >= step]

    def forget(self, step: int) -> None:
        """Drop the reports of ``step``."""
        self._all.forget(step)
        self._new.forget(step)
