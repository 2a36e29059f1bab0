"""The kit passes what keeps its promises, and names the promise that a broken family breaks."""

import json
import time
from dataclasses import replace
from pathlib import Path

import broken_families as families
import pytest

from troupe.conformance import CHECKS, CheckLimits, Reference, check_family
from troupe.errors import InvalidArgumentError, UnavailableError

HERE = str(Path(__file__).parent)
QUICK = CheckLimits(num_tasks=3, seconds=0.1, huge_chars=600_000, split_sample=60, num_draws=10)

BROKEN = [
    ("GlobalState", "step_pure"),
    ("OwnState", "step_pure"),
    ("RandomReward", "replay"),
    ("SharedScratch", "forks"),
    ("Farmable", "return_bound"),
    ("PaidExample", "lazy_unpaid"),
    ("RaisesOnOddDigits", "any_text"),
    ("ExitsOnEmptyText", "any_text"),
    ("SlowOnLongText", "step_time"),
    ("HangsOnEmptyText", "step_time"),
    ("InfoWithBytes", "info_json"),
    ("NanInfo", "info_json"),
    ("UndeclaredTerm", "local_terms"),
    ("NanTerm", "local_terms"),
    ("TextState", "state_bytes"),
    ("PaysAfterTheEnd", "after_done"),
    ("InfiniteReward", "transition"),
    ("OverlappingSplits", "splits_disjoint"),
    ("TwinsInTwoSplits", "splits_disjoint"),
    ("TimeSeeded", "tasks_seeded"),
    ("Sequential", "tasks_seeded"),
    ("NoRange", "task_range"),
    ("AnyAgent", "unknown_agent"),
    ("GlobalRandomPolicy", "policies"),
    ("ExitingPolicy", "policies"),
    ("PoorScript", "scripted_beats_random"),
    ("RepeatedWords", "vocabulary"),
    ("NoBound", "declared"),
    ("ForgottenAgent", "declared"),
    ("LoneSystemMessage", "messages"),
    ("NobodyToAct", "messages"),
    ("NineImages", "messages"),
    ("LeakingPrompt", "hidden"),
    ("LeakingTool", "hidden"),
    ("LeakingCall", "hidden"),
]


def test_check_family_when_every_promise_is_kept_then_passes_each_check() -> None:
    reference = Reference("broken_families:Counting", {"seed": 3}, (HERE,))
    report = check_family(
        families.Counting(families.Params(seed=3)), reference=reference, limits=QUICK
    )
    assert report.is_ok, report.text()
    assert set(report.named("passed")) == CHECKS.keys() - {"hidden"}
    assert json.loads(json.dumps(report.document()))["is_ok"] is True


@pytest.mark.parametrize(("name", "check"), BROKEN)
def test_check_family_when_one_promise_is_broken_then_its_check_fails(
    name: str, check: str
) -> None:
    only = [check] if name == "SharedScratch" else None
    limits = replace(QUICK, step_limit_s=0.1) if check == "step_time" else QUICK
    report = check_family(getattr(families, name)(families.Params()), limits=limits, only=only)
    assert check in report.failed, report.text()
    assert report[check].evidence
    assert report[check].advice
    assert not report.is_ok


def test_check_family_when_its_tasks_cannot_be_had_then_names_the_line() -> None:
    with pytest.raises(InvalidArgumentError, match=r"SystemExit: 0 \(at .*broken_families.py"):
        check_family(families.ExitingTaskset(families.Params()), limits=QUICK)


@pytest.mark.parametrize("name", ["HashOrder", "HashOrderPolicy"])
def test_check_family_when_hash_order_decides_then_the_other_process_differs(name: str) -> None:
    reference = Reference(f"broken_families:{name}", {}, (HERE,))
    family = getattr(families, name)(families.Params())
    report = check_family(
        family, reference=reference, limits=QUICK, only=["step_pure", "other_process"]
    )
    assert report.failed == ("other_process",), report.text()


def test_check_family_when_the_state_keeps_what_was_written_then_warns() -> None:
    limits = CheckLimits(num_tasks=2, seconds=0.2, huge_chars=100_000)
    report = check_family(families.Grows(families.Params()), limits=limits, only=["state_bytes"])
    assert [check.name for check in report.checks] == ["state_bytes"]
    assert report["state_bytes"].outcome == "warned"


def test_check_family_when_steps_hang_then_gives_up_soon_and_says_so() -> None:
    limits = CheckLimits(num_tasks=2, seconds=0.2, step_limit_s=0.05)
    report = check_family(families.HangsOnEmptyText(families.Params()), limits=limits)
    assert report.failed == ("step_time",)
    assert "gave up" in report["return_bound"].evidence[0]
    assert report["return_bound"].outcome == "skipped"


def test_check_family_when_steps_are_slow_then_ends_about_in_its_time_and_says_what_it_cut() -> (
    None
):
    limits = CheckLimits(num_tasks=20, seconds=0.1, total_seconds=2.0)
    heard: list[str] = []
    began = time.monotonic()
    report = check_family(families.Slow(families.Params()), limits=limits, on_check=heard.append)
    took_s = time.monotonic() - began
    assert report.is_ok, report.text()
    assert heard == [name for name, entry in CHECKS.items() if entry.run is not None]
    cut = [c for c in report.checks if any("cut short" in line for line in c.evidence)]
    assert {"step_pure", "replay", "forks"} <= {check.name for check in cut}, report.text()
    # Each check makes some steps however little time is left; uncut they take many times as long.
    assert took_s < 12, report.text()


def test_check_family_when_no_reference_is_given_then_the_other_process_is_skipped() -> None:
    report = check_family(
        families.Counting(families.Params()), limits=QUICK, only=["other_process"]
    )
    assert report["other_process"].outcome == "skipped"


def test_check_family_when_the_other_process_cannot_import_it_then_fails() -> None:
    reference = Reference("no_such_module_here:Family")
    family = families.Counting(families.Params())
    report = check_family(family, reference=reference, limits=QUICK, only=["other_process"])
    assert "no_such_module_here" in " ".join(report["other_process"].evidence)
    assert not report.is_ok


def test_check_family_when_a_machine_fails_then_says_nothing_about_the_family() -> None:
    class Down(families.CountingEnvironment):
        def step(self, state, agent, action):
            raise UnavailableError("the sandbox broke")

    class OnABrokenMachine(families.Counting):
        def environment(self):
            return Down()

    with pytest.raises(UnavailableError):
        check_family(OnABrokenMachine(families.Params()), limits=QUICK)


def test_check_family_when_a_check_is_unknown_then_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="step_pure"):
        check_family(families.Counting(families.Params()), only=["no_such_check"])


def test_check_family_when_run_twice_then_fixed_parts_say_the_same() -> None:
    only = ["tasks_seeded", "policies", "step_pure", "replay", "forks", "lazy_unpaid"]
    first, second = (
        check_family(families.Counting(families.Params()), limits=QUICK, only=only)
        for _ in range(2)
    )
    assert [c.evidence for c in first.checks] == [c.evidence for c in second.checks]
