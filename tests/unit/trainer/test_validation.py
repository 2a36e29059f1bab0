import random
from collections.abc import Callable
from dataclasses import replace

import pytest
from trainer_data import VOCABULARY, make_group

from troupe.api.records.v1 import records_pb2 as pb
from troupe_trainer.learn.validation import Expected, fault

EXPECTED = Expected("unit-1", "shared", 0, 0, VOCABULARY)


def test_fault_when_the_group_is_sound_then_none() -> None:
    assert fault(make_group(random.Random(0)), EXPECTED) is None


def test_fault_when_a_certain_token_is_rounded_up_then_none() -> None:
    group = make_group(random.Random(0))
    group.candidates[0].rollout_logprobs[0] = 1e-7
    assert fault(group, EXPECTED) is None


def _mix(group: pb.Group) -> None:
    other = make_group(random.Random(9), task=1)
    group.prompts.extend(other.prompts)
    group.candidates[1].prompt_digest = other.prompts[0].digest


def _orphan(group: pb.Group) -> None:
    group.candidates[1].prompt_digest = "0" * 32


def _tamper(group: pb.Group) -> None:
    group.prompts[0].token_ids[0] = (group.prompts[0].token_ids[0] + 1) % VOCABULARY


def _stale(group: pb.Group) -> None:
    group.candidates[2].policy_version = 7


def _nan(group: pb.Group) -> None:
    group.candidates[0].reward = float("nan")


def _huge(group: pb.Group) -> None:
    group.candidates[0].reward = -1e200


def _huge_term(group: pb.Group) -> None:
    group.candidates[0].terms["length"] = 1e39


def _alone(group: pb.Group) -> None:
    del group.candidates[1:]


def _empty(group: pb.Group) -> None:
    del group.candidates[0].token_ids[:]


def _short(group: pb.Group) -> None:
    group.candidates[0].rollout_logprobs.append(-1.0)


def _likelier_than_certain(group: pb.Group) -> None:
    group.candidates[0].rollout_logprobs[0] = 0.5


def _foreign(group: pb.Group) -> None:
    group.job_id = "another"


def _unknown(group: pb.Group) -> None:
    group.candidates[0].token_ids[0] = VOCABULARY


def _endless_lead(group: pb.Group) -> None:
    group.lead_returns.extend([1.0, float("inf")])


def _beyond_the_leads(group: pb.Group) -> None:
    group.candidates[0].trajectory = 2
    group.lead_returns.extend([1.0, 0.0])


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (_mix, "mixed_prompts"),
        (_orphan, "mixed_prompts"),
        (_tamper, "prompt_digest"),
        (_stale, "stale_version"),
        (_nan, "non_finite_reward"),
        (_huge, "non_finite_reward"),
        (_huge_term, "non_finite_reward"),
        (_alone, "too_few_candidates"),
        (_empty, "empty_completion"),
        (_short, "bad_logprobs"),
        (_likelier_than_certain, "bad_logprobs"),
        (_foreign, "foreign"),
        (_unknown, "unknown_token"),
        (_endless_lead, "non_finite_reward"),
        (_beyond_the_leads, "unknown_trajectory"),
    ],
)
def test_fault_when_the_group_is_spoilt_then_names_why(
    spoil: Callable[[pb.Group], None], reason: str
) -> None:
    group = make_group(random.Random(0))
    spoil(group)
    assert fault(group, EXPECTED) == reason


def test_fault_when_one_call_is_enough_then_a_greedy_one_alone_is_not() -> None:
    group, one = make_group(random.Random(0)), replace(EXPECTED, min_candidates=1)
    _alone(group)
    assert fault(group, one) is None
    group.candidates[0].is_baseline = True
    assert fault(group, one) == "too_few_candidates"


def _scored(group: pb.Group) -> pb.Group:
    for candidate in group.candidates:
        candidate.teacher_logprobs.extend([-1.0] * len(candidate.token_ids))
    return group


def test_fault_when_a_served_teacher_scored_it_then_every_token_has_its_number() -> None:
    expected = replace(EXPECTED, is_scored=True)
    assert fault(_scored(make_group(random.Random(0))), expected) is None
    assert fault(make_group(random.Random(0)), expected) == "no_teacher_logprobs"
    one = _scored(make_group(random.Random(0)))
    one.candidates[2].ClearField("teacher_logprobs")
    assert fault(one, expected) == "no_teacher_logprobs"
    one.candidates[2].is_baseline = True
    assert fault(one, expected) is None
    for spoilt in ([float("nan")], [0.5], [-1.0, -1.0]):
        group = _scored(make_group(random.Random(0)))
        group.candidates[1].teacher_logprobs[-1:] = spoilt
        assert fault(group, expected) == "bad_teacher_logprobs"


def test_fault_when_the_key_is_the_task_then_prompts_may_differ() -> None:
    group = make_group(random.Random(0))
    _mix(group)
    group.key = pb.GROUP_KEY_TASK
    assert fault(group, EXPECTED) is None
