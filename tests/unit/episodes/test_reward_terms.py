"""The terms that rewards are the sum of: on candidates of the tree, and on whole episodes."""

from dataclasses import replace

import pytest
from follow_world import AGENTS, ROUND, WEIGHTS, Numbers, NumbersEnv, job
from run_folders import spec_document

from troupe.algorithms.algorithm import Needs
from troupe.algorithms.base import GroupRelative
from troupe.api.records.v1 import records_pb2 as pb
from troupe.episodes.build import JobParts, load_parts
from troupe.episodes.player import EpisodePlayer, Played
from troupe.rewards.mix import TEAM_TERM, RewardMix
from troupe.samplers.coalition import CoalitionParams, CoalitionSampler
from troupe.samplers.follow import FollowSampler
from troupe.samplers.parallel import ParallelSampler
from troupe.samplers.sampler import Sampler
from troupe.samplers.tree import TreeSampler
from troupe.spec import SpecInvalidError, parse_spec
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


class OfTerms(GroupRelative):
    @property
    def needs(self) -> Needs:
        return replace(super().needs, terms=True)


class OfTurns(OfTerms):
    def sampler(self) -> Sampler:
        return ParallelSampler(self._spec.group_size, grouping="turns")


class OfActs(OfTerms):
    def sampler(self) -> Sampler:
        return ParallelSampler(self._spec.group_size, grouping="acts")


class OfCoalitions(OfTerms):
    def sampler(self) -> Sampler:
        return CoalitionSampler(self._spec.group_size, "shapley", CoalitionParams())


class OfFollowed(OfTerms):
    def sampler(self) -> Sampler:
        return FollowSampler(self._spec.group_size, executions=2)


@pytest.mark.parametrize("kind", [OfTurns, OfActs, OfCoalitions, OfFollowed])
def test_terms_when_rewards_are_no_sums_of_them_then_the_job_is_refused(kind: type) -> None:
    def parts_of(name: str) -> JobParts:
        algorithm = {"kind": f"{__name__}:{name}"}
        return load_parts(parse_spec(spec_document("m") | {"algorithm": algorithm}))

    assert parts_of("OfTerms").algorithm.needs.terms
    with pytest.raises(SpecInvalidError, match="needs the terms of rewards") as refused:
        parts_of(kind.__name__)
    assert refused.value.issues[0].pointer == "/algorithm/kind"
