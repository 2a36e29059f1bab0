"""What is said of a round in which agent programs fail, by hand."""

import json

import pytest

from troupe.api.records.v1 import records_pb2 as pb
from troupe.errors import ProgramRunDiedError, ProgramTimeoutError, UnavailableError
from troupe.tasks.program_ends import OF_OTHERS, OF_TEAM, end_of_error, end_of_reason, ends_of
from troupe_router.run.failing_programs import _REMEDY, failing_programs
from troupe_router.run.round_metrics import eval_line, play_metrics


def episode(name: str, ends: dict[str, int], messages: tuple[str, ...] = (), dropped: str = ""):
    infos = [{"program_end": "program_error", "message": message} for message in messages]
    candidates = [pb.Candidate(info_json=json.dumps(info)) for info in infos]
    return pb.Episode(
        episode_id=name,
        dropped_reason=dropped,
        program_ends=ends,
        groups=[pb.Group(candidates=candidates)],
    )


MIXED = [
    episode("a", {"answered": 6, "program_error": 1}, ("KeyError: 'x'",)),
    episode("b", {"program_error": 2}, ("ValueError: y", "ValueError: y")),
    episode("c", {"timeout": 1}, dropped="PROGRAM_TIMEOUT: neither asked nor ended"),
]


def test_play_metrics_when_programs_ran_then_failures_are_shares_of_all_runs() -> None:
    play = play_metrics(MIXED, 1.0)
    assert (play.num_program_runs, play.program_failed) == (10, 0.4)
    assert {k: v for k, v in play.program_failures.items() if v} == {
        "program_error": 0.3,
        "timeout": 0.1,
    }
    assert {*play.program_failures} == {*OF_TEAM, *OF_OTHERS}
    assert eval_line(0, play)["program_failed"] == 0.4


def test_play_metrics_when_no_program_ran_then_the_line_says_nothing_of_them() -> None:
    line = play_metrics([episode("a", {})], 1.0).to_line()
    assert not [name for name in line if "program" in name]


def test_round_when_too_many_programs_fail_then_the_sentence_shows_the_commonest() -> None:
    failing = failing_programs(MIXED, 0.39)
    assert failing is not None
    assert (failing.episode_id, failing.example) == ("b", "ValueError: y")
    assert failing.sentence.startswith(
        "4 of 10 agent programs failed (program_error 3, timeout 1). In b: 'ValueError: y'."
    )
    assert failing.to_json()["share"] == 0.4


def test_round_when_no_more_than_the_limit_fail_then_nothing_is_said() -> None:
    assert failing_programs(MIXED, 0.4) is None
    assert failing_programs([episode("a", {})], 0.0) is None


def test_round_when_a_machine_fails_it_then_the_reason_of_the_drop_is_the_example() -> None:
    failing = failing_programs(MIXED[2:], 0.2)
    assert failing is not None
    assert (failing.episode_id, failing.example) == ("c", "neither asked nor ended")


def test_round_when_a_failed_attempt_was_played_again_then_there_is_no_example() -> None:
    failing = failing_programs([episode("a", {"answered": 1, "died": 1})], 0.2)
    assert failing is not None
    assert "(died 1). It was killed" in failing.sentence


@pytest.mark.parametrize("end", [*OF_TEAM, *OF_OTHERS])
def test_failure_when_of_any_kind_then_there_is_advice(end: str) -> None:
    assert _REMEDY[end]


def test_errors_when_of_a_program_then_they_name_the_end() -> None:
    assert end_of_error(ProgramTimeoutError("late")) == "timeout"
    assert end_of_error(ProgramRunDiedError("of a run that is never repeated")) == "died"
    assert end_of_reason(ProgramTimeoutError.reason) == "timeout"
    assert end_of_error(UnavailableError("gone")) is None


def test_infos_when_some_end_a_program_then_only_those_count() -> None:
    infos = ['{"program_end": "answered"}', "{}", '{"note": "program_end"}', '["program_end"]']
    assert ends_of(infos) == {"answered": 1}


def test_infos_when_an_environment_makes_up_ends_then_they_are_one_kind() -> None:
    infos = [json.dumps({"program_end": f"made up {n} \ud800"}) for n in range(9)]
    assert ends_of(infos) == {"other": 9}
