"""The trainers' reports by step: one trainer's, or those of all per-policy trainers merged.

Owns which reports have arrived; troupe/runtime/step_report merges them. Pure; never waits.
"""

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from troupe.runtime.step_report.trainer import TrainerPart, over_policies
from troupe.spec.job import JobSpec


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
