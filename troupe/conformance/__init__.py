"""Does a task family keep its promises? ``check_family`` tries to show that it does not."""

from troupe.conformance.kit import CHECKS, check_family
from troupe.conformance.limits import Limits
from troupe.conformance.report import Check, Outcome, Report
from troupe.conformance.subject import Reference

__all__ = ["CHECKS", "Check", "Limits", "Outcome", "Reference", "Report", "check_family"]
