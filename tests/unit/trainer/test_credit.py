"""Credit of groups in the trainer: what is subtracted from whose reward."""

import random
from pathlib import Path
from typing import Any

import pytest
from trainer_data import job_spec, make_group

from troupe.algorithms.load import load_algorithm
from troupe.api.records.v1 import records_pb2 as pb
from troupe_trainer.learn.credit import CreditAssigner


def _assign(kind: str, group: pb.Group) -> list[float]:
    """Advantages of ``group`` where completions of more than 4 tokens cost up to 1 at 8."""
    algorithm = {"kind": kind, "group_size": 2, "overlong": {"buffer": 4}, "scale": "none"}
    spec = job_spec(Path("m"), algorithm=algorithm, sampling={"max_new_tokens": 8})
    unread: Any = {"shared": None}
    credit = CreditAssigner(spec, load_algorithm(spec.algorithm), unread, None)
    return list(credit.assign({"shared": [group]}).groups["shared"][0].advantages)


def _calls(key: pb.GroupKey) -> pb.Group:
    """Two answers of one trajectory, both worth 1, of 8 and of 4 tokens."""
    group = make_group(random.Random(1), size=2, rewards=[1.0, 1.0])
    group.key = key
    for candidate, length in zip(group.candidates, (8, 4), strict=True):
        candidate.token_ids[:] = [0] * length
        candidate.rollout_logprobs[:] = [-0.5] * length
    return group


@pytest.mark.parametrize("kind", ["dr_mas", "grpo"])
def test_overlong_when_one_trajectory_alone_called_the_agent_then_its_calls_stay_equal(
    kind: str,
) -> None:
    assert _assign(kind, _calls(pb.GROUP_KEY_TASK)) == [0.0, 0.0]


def test_overlong_when_a_trajectory_alone_is_not_compared_then_all_calls_lose_its_sum() -> None:
    group = _calls(pb.GROUP_KEY_TASK)
    group.candidates[1].token_ids.extend([0, 0])
    group.candidates[1].rollout_logprobs.extend([-0.5, -0.5])
    assert _assign("mareinforce", group) == [-0.5, -0.5]  # 1 - (1 + 1/2)


def test_overlong_when_siblings_answer_one_prompt_then_each_loses_its_own() -> None:
    assert _assign("at_grpo", _calls(pb.GROUP_KEY_OBSERVATION)) == [-0.5, 0.5]


def test_overlong_when_rewards_are_by_turn_then_each_act_loses_its_own() -> None:
    assert _assign("turn_grpo", _calls(pb.GROUP_KEY_TASK)) != [0.0, 0.0]
