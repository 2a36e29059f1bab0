"""What trainers report of each step: one trainer's report, or those of every policy's merged.

Owns which reports are in; troupe/runtime/step_report merges them. Pure; never waits.
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
        """One trainer's report of one step; a later one of it adds to the earlier."""
        trainer = str(report.get("policy", ""))
        self._reports[int(report["step"])].setdefault(trainer, {}).update(report)

    def is_reported(self, step: int) -> bool:
        """Every trainer has reported ``step``."""
        reports = self._reports.get(step, {})
        return all(policy in reports for policy in self._trainers)

    def of(self, step: int) -> TrainerPart | None:
        """All that is reported of ``step``; None while nothing is."""
        reports = self._reports.get(step, {})
        parts = [
            TrainerPart.from_wire(reports[policy]) for policy in self._trainers if policy in reports
        ]
        if not parts:
            return None
        return parts[0] if self._trainers == ("",) else over_policies(parts)

    def forget(self, step: int) -> None:
        """Nobody asks for ``step`` any more."""
        self._reports.pop(step, None)
