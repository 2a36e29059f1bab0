"""Does a task family keep its promises? ``check_family`` tries to show that it does not."""

from troupe.conformance.kit import CHECKS, check_family
from troupe.conformance.limits import CheckLimits
from troupe.conformance.report import Check, CheckReport, Outcome
from troupe.conformance.subject import Reference

__all__ = ["CHECKS", "Check", "CheckLimits", "CheckReport", "Outcome", "Reference", "check_family"]
