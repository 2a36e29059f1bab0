"""The tree on a small environment whose numbers can be followed by hand."""

import asyncio
import json
import math
from dataclasses import replace

import pytest

from troupe.api.records.v1 import records_pb2 as pb
from troupe.candidates import Candidate, Generation
from troupe.episodes.player import EpisodePlayer
from troupe.episodes.ports import Outcome, Start
from troupe.errors import DeadlineError, RewardFailedError, UnavailableError
from troupe.ids import prompt_digest
from troupe.rewards.mix import RewardMix
from troupe.samplers.parallel import ParallelSampler
from troupe.samplers.tree import TreeSampler
from troupe.spec import parse_spec
from troupe.tasks.actions import is_cut
from troupe.tasks.family import Message
from troupe.workflows.turn_based import TurnBased

K = 4


class AddingEnv:
    """The state is the list of executed numbers; an action adds one; done at a sum of 20."""

    def __init__(self) -> None:
        self.judged: list[tuple[str, list[int], list[str]]] = []

    async def reset(self, *, split, index, observe, timeout_s):
        return Start(f"adding/{split}/{index}", b"[]", self._observations([], observe))

    async def step(self, *, state, agent, actions, observe, timeout_s):
        history = json.loads(state)
        self.judged.append((agent, history, list(actions)))
        return [self._outcome(history, agent, int(a), observe) for a in actions]

    def _outcome(self, history, agent, number, observe):
        history = [*history, number]
        done = sum(history) >= 20
        local = {"size": float(number)}
        view = self._observations(history, observe)
        return Outcome(json.dumps(history).encode(), 0.5, local, done, done, "{}", view)

    def _observations(self, history, agents):
        return {a: (Message("user", f"{a} sees {history}"),) for a in agents}


class CutRollout:
    """Three times 1: whole, cut at its bound, and cut again."""

    async def generate(self, request, *, timeout_s):
        reasons = ("stop", "length", "length")
        found = [Candidate([1], [-0.5], "1", reason) for reason in reasons]
        return Generation([7], prompt_digest([7]), found, request.policy_version, 0.0)


class CountingRollout:
    """Candidate i of the j-th call says i + j; the prompt is the text's bytes."""

    def __init__(self) -> None:
        self.prompts: list[str] = []
        self.seeds: list[int] = []

    async def generate(self, request, *, timeout_s):
        text = request.prompt[0].content
        base = len(self.prompts)
        self.prompts.append(text)
        self.seeds.append(request.seed)
        ids = list(text.encode())
        numbers = [i + base for i in range(request.num_candidates)]
        found = [Candidate([n], [-0.5], str(n), "stop") for n in numbers]
        return Generation(ids, prompt_digest(ids), found, request.policy_version, 0.0)


def spec(**changes):
    return parse_spec(
        {
            "name": "t",
            "seed": 3,
            "steps": 1,
            "task": {"name": "adding"},
            "workflow": {"order": ["a", "b"], "max_turns": 2},
            "agents": {"a": {"policy": "p"}, "b": {"policy": "p"}},
            "policies": {"p": {"model": "m"}},
            **changes,
        }
    )


def ticket(kind=pb.ROUND_KIND_TRAIN):
    return pb.Ticket(
        ticket_id="t/train-00000/00000",
        job_id="t",
        round_id="train-00000",
        kind=kind,
        split="train",
        task_index=5,
        policy_versions={"p": 7},
    )


def player(sampler, rollout, env, job=None):
    job = job or spec()
    return EpisodePlayer(
        job,
        workflow=TurnBased(job.workflow),
        sampler=sampler,
        mix=RewardMix(job.reward, {"a": {"size": 1.0}, "b": {"size": 2.0}}),
        rollout=rollout,
        env=env,
    )


async def test_tree_when_played_then_every_agent_turn_has_k_own_rewards_from_one_prompt():
    played = await player(TreeSampler(K), CountingRollout(), AddingEnv()).play(ticket())
    assert [(g.agent, g.turn) for g in played.groups] == [("a", 0), ("b", 0), ("a", 1), ("b", 1)]
    for call, group in enumerate(played.groups):
        weight = {"a": 1.0, "b": 2.0}[group.agent]
        assert group.key == pb.GROUP_KEY_OBSERVATION
        assert len(group.prompts) == 1
        assert {c.prompt_digest for c in group.candidates} == {group.prompts[0].digest}
        assert [c.reward for c in group.candidates] == [0.5 + weight * (call + i) for i in range(K)]
        assert [c.is_chosen for c in group.candidates] == [False, False, False, True]
        assert group.policy_version == 7


async def test_tree_when_second_agent_acts_then_it_sees_the_firsts_executed_action_of_this_turn():
    rollout, env = CountingRollout(), AddingEnv()
    await player(TreeSampler(K), rollout, env).play(ticket())
    assert rollout.prompts == ["a sees []", "b sees [3]", "a sees [3, 4]", "b sees [3, 4, 5]"]
    # Each candidate of b was judged on a state that holds a's winner and nothing else.
    assert env.judged[1] == ("b", [3], ["1", "2", "3", "4"])


async def test_tree_when_environment_is_done_then_the_turn_ends_at_once():
    job = spec(workflow={"order": ["a", "b"], "max_turns": 50})
    played = await player(TreeSampler(K), CountingRollout(), AddingEnv(), job).play(ticket())
    # Winners 3 + 4 + 5 + 6 = 18, then 7: done in a's third turn, b does not act again.
    assert [(g.agent, g.turn) for g in played.groups][-1] == ("a", 2)
    assert played.episode.is_success
    assert played.episode.num_turns == 3


async def test_group_ids_when_played_twice_then_equal_and_seeds_differ_by_place():
    first, second = CountingRollout(), CountingRollout()
    one = await player(TreeSampler(K), first, AddingEnv()).play(ticket())
    two = await player(TreeSampler(K), second, AddingEnv()).play(ticket())
    assert [g.SerializeToString(deterministic=True) for g in one.groups] == [
        g.SerializeToString(deterministic=True) for g in two.groups
    ]
    assert len({g.group_id for g in one.groups}) == 4
    assert first.seeds == second.seeds
    assert len(set(first.seeds)) == 4


async def test_parallel_when_played_then_one_group_an_agent_with_the_trajectorys_return():
    played = await player(ParallelSampler(3), CountingRollout(), AddingEnv()).play(ticket())
    assert [(g.agent, g.key) for g in played.groups] == [
        ("a", pb.GROUP_KEY_TASK),
        ("b", pb.GROUP_KEY_TASK),
    ]
    for group in played.groups:
        assert [c.index for c in group.candidates] == list(range(len(group.candidates)))
        by_trajectory: dict[int, set[float]] = {}
        for c in group.candidates:
            by_trajectory.setdefault(c.trajectory, set()).add(c.reward)
        assert sorted(by_trajectory) == [0, 1, 2]
        assert all(len(rewards) == 1 for rewards in by_trajectory.values())
        assert {c.prompt_digest for c in group.candidates} == {p.digest for p in group.prompts}


async def test_evaluation_when_played_then_one_candidate_and_nothing_to_train_on():
    played = await player(TreeSampler(K), CountingRollout(), AddingEnv()).play(
        ticket(pb.ROUND_KIND_EVAL)
    )
    assert played.groups == []
    assert all(len(g.candidates) == 1 for g in played.episode.groups)


async def test_episode_record_when_made_then_tokens_are_in_the_trained_groups_alone():
    played = await player(TreeSampler(K), CountingRollout(), AddingEnv()).play(ticket())
    assert played.episode.num_tokens == 4 * K
    shown = [c for g in played.episode.groups for c in g.candidates]
    held = [c for g in played.groups for c in g.candidates]
    assert all(len(c.rollout_logprobs) == len(c.token_ids) > 0 for c in held)
    assert [c.num_tokens for c in shown] == [len(c.token_ids) for c in held]
    assert not any(c.token_ids or c.rollout_logprobs for c in shown)
    assert not any(p.token_ids for g in played.episode.groups for p in g.prompts)
    assert all(p.token_ids for g in played.groups for p in g.prompts)


async def test_episode_record_when_an_evaluation_then_candidates_keep_their_tokens():
    evaluated = ticket(pb.ROUND_KIND_EVAL)
    played = await player(TreeSampler(K), CountingRollout(), AddingEnv()).play(evaluated)
    shown = [c for g in played.episode.groups for c in g.candidates]
    assert all(len(c.rollout_logprobs) == len(c.token_ids) > 0 for c in shown)
    assert not any(p.token_ids for g in played.episode.groups for p in g.prompts)


async def test_equal_candidates_when_judged_then_the_environment_is_asked_once():
    class Same(CountingRollout):
        async def generate(self, request, *, timeout_s):
            made = await super().generate(request, timeout_s=timeout_s)
            return replace(made, candidates=[Candidate([1], [-0.1], "1", "stop")] * K)

    env = AddingEnv()
    played = await player(TreeSampler(K), Same(), env).play(ticket())
    assert env.judged[0][2] == ["1"]
    assert len(played.groups[0].candidates) == K


@pytest.mark.parametrize("sampler", [TreeSampler(K), ParallelSampler(3)])
async def test_machine_failure_when_env_is_down_then_raised_as_it_is_not_scored_zero(sampler):
    class Down(AddingEnv):
        async def step(self, **_):
            raise UnavailableError("env-0 is down")

    with pytest.raises(UnavailableError, match="env-0"):
        await player(sampler, CountingRollout(), Down()).play(ticket())


async def test_episode_when_it_never_ends_then_deadline_error_names_the_limit():
    class Hanging(AddingEnv):
        async def step(self, **_):
            await asyncio.Event().wait()

    job = spec(limits={"episode_timeout_s": 0.05})
    with pytest.raises(DeadlineError, match="episode_timeout_s"):
        await player(TreeSampler(K), CountingRollout(), Hanging(), job).play(ticket())


async def test_actions_when_a_bound_cut_some_then_equal_texts_are_judged_apart() -> None:
    env = AddingEnv()
    await player(TreeSampler(3), CutRollout(), env).play(ticket())
    actions = env.judged[0][2]
    assert [(action, is_cut(action)) for action in actions] == [("1", False), ("1", True)]


class PayingEnv(AddingEnv):
    """Pays its action 1 as ``paid`` says."""

    def __init__(self, **paid) -> None:
        super().__init__()
        self._paid = paid

    def _outcome(self, history, agent, number, observe):
        outcome = super()._outcome(history, agent, number, observe)
        return replace(outcome, **self._paid) if number == 1 else outcome


@pytest.mark.parametrize(
    ("paid", "words"),
    [
        ({"team_reward": math.nan}, "paid nan, or no number, for agent 'a', action '1'"),
        ({"team_reward": None}, "paid None for agent 'a', action '1'"),
        ({"local_rewards": {"size": math.inf}}, "paid inf as term 'size' for agent 'a'"),
    ],
)
async def test_task_when_it_pays_no_finite_number_then_nothing_is_scored_and_it_is_named(
    paid, words
):
    with pytest.raises(RewardFailedError, match=f"task 'adding' {words}") as caught:
        await player(TreeSampler(K), CountingRollout(), PayingEnv(**paid)).play(ticket())
    assert not caught.value.retryable
