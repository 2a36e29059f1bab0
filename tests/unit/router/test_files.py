"""episodes.jsonl and metrics.jsonl: exactly once, torn lines, rewinding."""

import json
from pathlib import Path

from troupe.api.records.v1 import records_pb2 as pb
from troupe_router.run.episodes_file import append_at, is_kept, keep_lines


def episode(name: str, kind: int = pb.ROUND_KIND_TRAIN) -> pb.Episode:
    return pb.Episode(episode_id=name, kind=kind, round_id="train-00000")


def test_append_at_when_repeated_then_the_file_is_the_same(tmp_path: Path) -> None:
    path = tmp_path / "episodes.jsonl"
    append_at(path, 0, [episode("a")])
    size = path.stat().st_size
    append_at(path, size, [episode("b"), episode("c")])
    once = path.read_bytes()
    path.write_bytes(once + b'{"torn')
    append_at(path, size, [episode("b"), episode("c")])
    assert path.read_bytes() == once
    assert [json.loads(x)["episode_id"] for x in once.splitlines()] == ["a", "b", "c"]


def test_append_at_when_tokens_are_not_kept_then_their_number_still_is(tmp_path: Path) -> None:
    path = tmp_path / "episodes.jsonl"
    played = episode("a")
    group = played.groups.add(group_id="g")
    group.candidates.add(index=0, token_ids=[5, 6, 7], rollout_logprobs=[-0.1] * 3)
    append_at(path, 0, [played])
    candidate = json.loads(path.read_text())["groups"][0]["candidates"][0]
    assert candidate["num_tokens"] == 3
    assert "tokens" not in candidate


def test_keep_lines_drops_torn_and_unwanted_lines(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 0}\n{"step": 1}\n{"step": 2}\n{"st')
    assert keep_lines(path, lambda line: line["step"] < 2) == [{"step": 0}, {"step": 1}]
    assert path.read_text() == '{"step": 0}\n{"step": 1}\n'
    assert keep_lines(tmp_path / "absent.jsonl", lambda _: True) == []


def test_is_kept_samples_training_and_keeps_evaluation() -> None:
    kept = sum(is_kept(episode(f"e{i}"), 0.25) for i in range(1000))
    assert 180 < kept < 320
    assert is_kept(episode("x", pb.ROUND_KIND_EVAL), 0.0)
