"""Which episodes are recorded, and how."""

import json

from troupe.api.records.v1 import records_pb2 as pb
from troupe_router.run.episodes_file import episode_lines, is_kept


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


def test_is_kept_samples_training_and_keeps_evaluation() -> None:
    kept = sum(is_kept(episode(f"e{i}"), 0.25) for i in range(1000))
    assert 180 < kept < 320
    assert is_kept(episode("x", pb.ROUND_KIND_EVAL), 0.0)
