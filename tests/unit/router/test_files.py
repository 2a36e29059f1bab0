"""Which episodes are recorded, and how."""

import json
import math

import pytest

from troupe.api.records.v1 import records_pb2 as pb
from troupe_router.run.episodes_file import RecordLimits, episode_lines, is_kept
from troupe_router.run.record_restore import metrics_line


def episode(name: str, kind: int = pb.ROUND_KIND_TRAIN) -> pb.Episode:
    return pb.Episode(episode_id=name, kind=kind, round_id="train-00000")


def test_episode_lines_when_tokens_are_not_kept_then_their_number_still_is() -> None:
    played = episode("a")
    group = played.groups.add(group_id="g")
    group.candidates.add(index=0, token_ids=[5, 6, 7], rollout_logprobs=[-0.1] * 3)
    (line,) = episode_lines([played])
    candidate = json.loads(line)["groups"][0]["candidates"][0]
    assert candidate["num_tokens"] == 3
    assert "tokens" not in candidate


def test_episode_lines_when_tokens_are_kept_then_logprobs_are_to_thousandths() -> None:
    played = episode("a")
    logprobs = [-0.0004, -0.1236, -2.5, -11.9996, 0.0]
    played.groups.add(group_id="g").candidates.add(token_ids=[5] * 5, rollout_logprobs=logprobs)
    (line,) = episode_lines([played], with_tokens=True)
    tokens = json.loads(line)["groups"][0]["candidates"][0]["tokens"]
    assert tokens == {"ids": [5] * 5, "logprobs": [0.0, -0.124, -2.5, -12.0, 0.0]}


def test_episode_lines_when_a_note_is_a_huge_number_then_it_is_written_whole() -> None:
    played = episode("a")
    note = json.dumps({"count": 2**80, "word": "\u00e9"})
    played.groups.add(group_id="g").candidates.add(is_chosen=True, info_json=note)
    (line,) = episode_lines([played])
    assert json.loads(line)["groups"][0]["candidates"][0]["info"] == json.loads(note)


def test_record_limits_when_a_round_samples_faster_than_the_rate_then_a_share_is_recorded() -> None:
    limits = RecordLimits(0.5, tokens_per_s=1000.0)
    many = [pb.Episode(num_tokens=25_000)] * 40
    assert limits.fraction_of(many, 50.0, now=150.0) == 0.1
    assert limits.fraction_of(many, 50.0, now=51.0) == 0.01  # ten seconds' worth
    assert limits.fraction_of(many[:1], 50.0, now=150.0) == 0.5
    assert limits.fraction_of([], 50.0, now=50.0) == 0.5
    assert RecordLimits(0.5).fraction_of(many, 50.0, now=51.0) == 0.5


def test_record_limits_when_a_round_is_recorded_after_a_crash_then_the_share_is_the_same() -> None:
    limits = RecordLimits(1.0, tokens_per_s=1000.0)
    busy = pb.BusyTimes(generate=[51.0, 60.0, 70.0, 99.0], env=[60.0, 70.0])
    judged_last = pb.BusyTimes(generate=[51.0, 60.0], env=[99.5, 150.0])
    many = [pb.Episode(num_tokens=25_000, busy=busy)] * 39
    many.append(pb.Episode(num_tokens=25_000, busy=judged_last))
    soon, late = (limits.fraction_of(many, 50.0, now=now) for now in (150.2, 600.0))
    assert soon == late == 0.1


def test_is_kept_samples_training_and_keeps_evaluation() -> None:
    kept = sum(is_kept(episode(f"e{i}"), 0.25) for i in range(1000))
    assert 180 < kept < 320
    assert is_kept(episode("x", pb.ROUND_KIND_EVAL), 0.0)


def test_lines_when_they_hold_numbers_that_json_does_not_know_then_null() -> None:
    line = {"loss": math.nan, "policies": {"p": {"own": -math.inf, "kl": 0.5}}, "all": [math.inf]}
    written = metrics_line({"kind": "train", "step": 1, **line})
    assert json.loads(written, parse_constant=pytest.fail) == {
        "kind": "train",
        "step": 1,
        "loss": None,
        "policies": {"p": {"own": None, "kl": 0.5}},
        "all": [None],
    }


def test_episode_lines_when_a_note_is_too_large_and_another_nan_then_null() -> None:
    played = pb.Episode(groups=[pb.Group(agent="a", candidates=[pb.Candidate(is_chosen=True)])])
    played.groups[0].candidates[0].info_json = f'{{"large": {2**70}, "wrong": NaN}}'
    (text,) = episode_lines([played])
    [group] = json.loads(text, parse_constant=pytest.fail)["groups"]
    assert group["candidates"][0]["info"] == {"large": 2**70, "wrong": None}
