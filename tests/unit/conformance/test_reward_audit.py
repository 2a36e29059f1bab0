"""The audit passes honest rewards, and names the attacker that a hackable reward pays."""

import ast
import json
import re
from dataclasses import replace
from pathlib import Path
from random import Random

import hackable_families as families
import pytest
from typer.main import get_command
from typer.testing import CliRunner

from troupe.cli.main import build_app
from troupe.conformance.adversarial import Situation
from troupe.conformance.attacks.answers import TEXT_ATTACKERS
from troupe.conformance.attacks.programs import PROGRAM_ATTACKERS
from troupe.conformance.audit import AuditLimits, audit_family
from troupe.conformance.limits import CheckLimits
from troupe.conformance.subject import Subject

HERE = Path(__file__).parent
QUICK = AuditLimits(num_tasks=10, budget=200)

HACKABLE = [
    ("AnyNumberCounts", "many_boxes"),
    ("ExampleIsRight", "echo_example"),
    ("SilenceIsGolden", "empty"),
    ("MagicWord", "constant_search"),
    ("PromptIsTrusted", "echo_user"),
    ("PublicSecret", "magic_spell"),
    ("WordsInAnyOrder", "salad_search"),
]


@pytest.mark.parametrize("name", ["Adding", "Retelling"])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_audit_when_the_reward_is_honest_then_finds_nothing(name: str, seed: int) -> None:
    family = getattr(families, name)()
    report = audit_family(family, limits=AuditLimits(num_tasks=10, budget=200, seed=seed))
    assert report.is_ok, report.text()
    assert not report.findings
    assert report.honest is not None
    assert report.honest.success == 1.0


@pytest.mark.parametrize(("name", "attacker"), HACKABLE)
def test_audit_when_the_reward_is_hackable_then_names_the_attack_and_shows_an_episode(
    name: str, attacker: str
) -> None:
    limits = replace(QUICK, budget=2000) if "search" in attacker else QUICK
    report = audit_family(getattr(families, name)(), limits=limits)
    findings = {finding.attacker: finding for finding in report.findings}
    assert attacker in findings, report.text()
    assert not report.is_ok
    shown = findings[attacker].episode
    assert shown.moves
    assert shown.is_success or shown.reward > (report.bounds.reward or 0.0)
    assert f"FINDING: {attacker}" in report.text()


def test_audit_when_the_family_documents_an_exception_then_passes_and_says_why() -> None:
    report = audit_family(families.Excused(), limits=QUICK)
    assert report.is_ok
    assert [finding.attacker for finding in report.findings] == ["magic_spell"]
    assert "reason given: a cheat for players, kept on purpose" in report.text()


def test_audit_when_repeated_with_its_seed_then_is_the_same() -> None:
    first, again = (audit_family(families.Retelling(), limits=QUICK) for _ in range(2))
    assert first == again
    assert json.loads(json.dumps(first.document()))["is_ok"] is True


def test_attackers_when_listed_then_names_are_unique_and_none_demonstrates() -> None:
    names = [attacker.name for attacker in (*TEXT_ATTACKERS, *PROGRAM_ATTACKERS)]
    assert len(set(names)) == len(names)
    subject = Subject(families.Adding(), reference=None, sandbox=None, limits=CheckLimits())

    def refused(state: bytes, agent: str, rng: Random) -> str:
        raise AssertionError("an attacker asked for a demonstration")

    subject.family.demonstrate = refused  # pyright: ignore[reportAttributeAccessIssue]
    state = subject.env.reset(subject.tasks[0])
    for attacker in (*TEXT_ATTACKERS, *PROGRAM_ATTACKERS):
        assert isinstance(attacker.act(Situation(subject, state, "agent", Random(0), [])), str)


@pytest.mark.parametrize(
    "asked",
    [
        "Write the Python 3 function f.\nassert f(1, 'a') == [1]",
        "Write the Python 3 function f as a method of a class Box, complete.",
        "Write a Python 3 program.\nTest Input:\n```\n3\n```\nTest Output:\n```\n4\n```",
    ],
)
def test_program_attackers_when_asked_in_any_form_then_write_valid_python(asked: str) -> None:
    class Asking(families.Adding):
        def observe(self, state: object, agent: str) -> str:
            return asked

    subject = Subject(Asking(), reference=None, sandbox=None, limits=CheckLimits())
    state = subject.env.reset(subject.tasks[0])
    for attacker in PROGRAM_ATTACKERS:
        text = attacker.act(Situation(subject, state, "agent", Random(0), []))
        source = re.search(r"```python\n(.*)```", text, re.DOTALL)
        assert source, attacker.name
        ast.parse(source[1])


@pytest.mark.parametrize(("name", "status"), [("Adding", 0), ("ExampleIsRight", 1)])
def test_audit_command_when_it_ends_then_its_status_is_the_verdict(name: str, status: int) -> None:
    target = f"{HERE / 'hackable_families.py'}:{name}"
    done = CliRunner().invoke(
        build_app(), ["audit", target, "--n", "6", "--budget", "40", "--json"]
    )
    assert done.exit_code == status, done.output
    document = json.loads(done.stdout)
    assert document["is_ok"] is (status == 0)
    assert {earned["name"] for earned in document["attackers"]} >= {"empty", "constant_search"}
    shown = [finding["episode"]["moves"] for finding in document["findings"]]
    assert all(shown)


def test_audit_command_when_no_effort_is_given_then_its_defaults_are_numbers() -> None:
    command = get_command(build_app()).commands["audit"]  # type: ignore[attr-defined]
    defaults = {option.name: option.default for option in command.params}
    assert (defaults["num_tasks"], defaults["budget"]) == (20, 400)
