"""The terms that rewards are the sum of: on candidates of the tree, and on whole episodes."""

import pytest
from follow_world import AGENTS, ROUND, WEIGHTS, Numbers, NumbersEnv, job

from troupe.api.records.v1 import records_pb2 as pb
from troupe.episodes.player import EpisodePlayer, Played
from troupe.errors import InvalidArgumentError
from troupe.rewards.mix import TEAM_TERM, RewardMix
from troupe.samplers.parallel import ParallelSampler
from troupe.samplers.sampler import GroupingKey, Sampler
from troupe.samplers.tree import TreeSampler
from troupe.workflows.self_play import SelfPlay


async def play(sampler: Sampler, *, with_terms: bool = True) -> Played:
    spec = job(reward={"alpha": 2.0})
    player = EpisodePlayer(
        spec,
        workflow=SelfPlay(spec.workflow),
        sampler=sampler,
        mix=RewardMix(spec.reward, WEIGHTS),
        rollout=Numbers(),
        env=NumbersEnv(4),
        with_terms=with_terms,
    )
    ticket = pb.Ticket(
        ticket_id=f"t/{ROUND}/00000",
        round_id=ROUND,
        kind=pb.ROUND_KIND_TRAIN,
        split="train",
        policy_versions={"p": 4, "q": 4},
    )
    return await player.play(ticket)


@pytest.mark.parametrize("sampler", [TreeSampler(5), ParallelSampler(6)])
async def test_terms_when_weighted_then_add_up_to_the_reward(sampler: Sampler) -> None:
    played = await play(sampler)
    assert {group.agent for group in played.groups} == set(AGENTS)
    for group in played.groups:
        weights = {TEAM_TERM: 2.0, **WEIGHTS[group.agent]}
        assert dict(group.term_weights) == weights
        for candidate in group.candidates:
            total = sum(weights[term] * value for term, value in candidate.terms.items())
            assert total == pytest.approx(candidate.reward, abs=1e-12)
    if isinstance(sampler, TreeSampler):
        return
    (own,) = [group for group in played.groups if group.agent == "a"]
    first = [c for c in own.candidates if c.trajectory == 0]
    assert first[0].terms["size"] == sum(int(c.text) for c in first), "a trajectory's sum"


async def test_terms_when_not_needed_then_are_left_out() -> None:
    played = await play(TreeSampler(3), with_terms=False)
    assert not any(group.term_weights for group in played.groups)
    assert not any(c.terms for group in played.groups for c in group.candidates)


@pytest.mark.parametrize("grouping", ["turns", "acts"])
async def test_terms_when_groups_are_by_turn_then_says_so(
    grouping: GroupingKey,
) -> None:
    with pytest.raises(InvalidArgumentError, match=f"groups by {grouping}"):
        await play(ParallelSampler(2, grouping=grouping))
