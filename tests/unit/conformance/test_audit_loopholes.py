"""The audit names the attack for each common hole of a judge."""

import loophole_families as families
import pytest

from troupe.conformance.attacks.answers import TEXT_ATTACKERS
from troupe.conformance.attacks.loopholes import LOOPHOLE_ATTACKERS
from troupe.conformance.attacks.programs import PROGRAM_ATTACKERS
from troupe.conformance.audit import AuditLimits, audit_family

HOLES = [
    ("NanIsClose", "odd_number_0"),
    ("InfinityIsClose", "odd_number_1"),
    ("AnyLargeNumberCounts", "every_number"),
    ("AnySubstringCounts", "every_number"),
    ("AnyBoxCounts", "every_box"),
    ("AnyTagCounts", "every_tag"),
    ("TooDeepIsRight", "deep_brackets"),
    ("OddDigitsAreRight", "odd_number_6"),
    ("NothingByNothingIsRight", "odd_number_4"),
    ("AnswerIsThePattern", "wildcard_0"),
    ("FieldsAreText", "fields_0"),
    ("RecordIsText", "json_fields"),
    ("NumberGivesItAway", "prompt_number_first"),
    ("MirroredNumberGivesItAway", "prompt_number_back"),
    ("FormulaIsItsOwnAnswer", "expression"),
    ("PartnersAgree", "echo_partner"),
    ("RangesCount", "range_0"),
    ("FormIsPaid", "every_markup"),
]


@pytest.mark.parametrize(("name", "attacker"), HOLES)
def test_audit_when_a_judge_has_a_common_hole_then_names_the_attack(
    name: str, attacker: str
) -> None:
    limits = AuditLimits(num_tasks=10, budget=0)
    report = audit_family(getattr(families, name)(), limits=limits)
    assert attacker in {finding.attacker for finding in report.findings}, report.text()
    assert report.honest is not None
    assert report.honest.success == 1.0 or name == "PartnersAgree"


def test_attackers_when_all_are_listed_then_names_are_unique() -> None:
    everyone = (*TEXT_ATTACKERS, *PROGRAM_ATTACKERS, *LOOPHOLE_ATTACKERS)
    assert len({attacker.name for attacker in everyone}) == len(everyone)
