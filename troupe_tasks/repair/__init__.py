"""Repair: a reader finds the fault in a repository, a fixer edits it, hidden tests judge."""

from troupe_tasks.repair.family import Repair, RepairParams

__all__ = ["Repair", "RepairParams"]
