"""Conformance kit for task families: ``check_family`` looks for broken promises."""

from troupe.conformance.kit import CHECKS, check_family
from troupe.conformance.limits import CheckLimits
from troupe.conformance.report import Check, CheckReport, Outcome
from troupe.conformance.subject import Reference

__all__ = ["CHECKS", "Check", "CheckLimits", "CheckReport", "Outcome", "Reference", "check_family"]
