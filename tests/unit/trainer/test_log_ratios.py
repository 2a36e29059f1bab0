"""What MADPO reads before its advantages: log pi / pi_ref of whole completions."""

import random
from pathlib import Path

import pytest
from trainer_data import job_spec, make_group

from troupe.api.records.v1 import records_pb2 as pb
from troupe_trainer.learn.collector import Batch
from troupe_trainer.learn.credit import credit
from troupe_trainer.learn.learners import Learners

MADPO = {"kind": "madpo", "group_size": 4, "joint": {}, "preference": {"beta": 0.5}}


def node_groups(step: int) -> list[pb.Group]:
    """The groups of two agents at one node: three candidates earn nothing."""
    groups = [
        make_group(random.Random(f"{step}/{agent}"), step=step, agent=agent, rewards=[0, 1, 0, 0])
        for agent in ("planner", "tool")
    ]
    for group in groups:
        group.node = f"{group.ticket_id}/n"
    return groups


def score(team: Learners, group: pb.Group, index: int, *, reference: bool) -> float:
    """The candidate's log probability by the model itself, one sequence at a time."""
    model = team.learners["shared"].model
    prompt = list(group.prompts[0].token_ids)
    tokens = list(group.candidates[index].token_ids)
    if reference:
        with model.module.disable_adapter():
            return sum(model.score(prompt + tokens)[len(prompt) - 1 :])
    return sum(model.score(prompt + tokens)[len(prompt) - 1 :])


async def test_log_ratios_when_the_policy_has_moved_then_are_those_of_whole_completions(
    tiny_model: Path, tmp_path: Path
) -> None:
    team = await Learners.load(
        job_spec(tiny_model, algorithm=MADPO), tmp_path, device="cpu", threads=1
    )
    try:
        learner = team.learners["shared"]
        groups = node_groups(1)
        plain = [credit(group, [0.0] * 4, 1.0) for group in groups]
        assert learner.log_ratios(plain) == [pytest.approx([0.0] * 4, abs=1e-5)] * 2
        await team.learn(Batch(0, {"shared": node_groups(0)}, {}))
        found = learner.log_ratios(plain)
        for group, ratios in zip(groups, found, strict=True):
            want = [
                score(team, group, i, reference=False) - score(team, group, i, reference=True)
                for i in range(4)
            ]
            assert ratios == pytest.approx(want, abs=1e-4)
        assert max(abs(ratio) for own in found for ratio in own) > 0.01
    finally:
        team.close()


async def test_madpo_when_learnt_then_the_winner_gains_on_the_loser(
    tiny_model: Path, tmp_path: Path
) -> None:
    team = await Learners.load(
        job_spec(tiny_model, algorithm=MADPO), tmp_path, device="cpu", threads=1
    )
    try:
        groups = node_groups(0)
        credited = team.credit("shared", groups)
        assert [[a > 0 for a in c.advantages] for c in credited] == [
            [False, True, False, False]
        ] * 2
        assert [sum(c.advantages) for c in credited] == [0.0, 0.0]
        loser = credited[0].advantages.index(min(credited[0].advantages))
        await team.learn(Batch(0, {"shared": groups}, {}))
        plain = [credit(group, [0.0] * 4, 1.0) for group in groups]
        margins = [own[1] - own[loser] for own in team.learners["shared"].log_ratios(plain)]
        assert all(margin > 0 for margin in margins)
    finally:
        team.close()
