"""What learns decides what is drawn: redraws, greedy baselines, turns in learning, turn rewards."""

import json
from types import SimpleNamespace
from typing import Any

import pytest

from troupe.algorithms.load import load_algorithm
from troupe.api.records.v1 import records_pb2 as pb
from troupe.candidates import Candidate, Generation
from troupe.episodes.build import JobParts
from troupe.episodes.player import EpisodePlayer
from troupe.episodes.ports import Outcome, Start
from troupe.episodes.redraw import has_variance, redrawn_index
from troupe.ids import prompt_digest
from troupe.rewards.mix import RewardMix
from troupe.samplers.parallel import ParallelSampler
from troupe.samplers.tree import TreeSampler
from troupe.seeds import derive_seed
from troupe.spec import parse_spec
from troupe.tasks.family import Message
from troupe.workflows.turn_based import TurnBased


class LevelEnv:
    """Tasks below ``flat_below`` reward nothing; the others reward an action's number."""

    def __init__(self, flat_below: int = 0) -> None:
        self.flat_below = flat_below
        self.played: list[int] = []

    async def reset(self, *, split, index, observe, timeout_s):
        self.played.append(index)
        return Start(f"level/{index}", json.dumps([index]).encode(), self._views([index], observe))

    async def step(self, *, state, agent, actions, observe, timeout_s):
        return [self._outcome(json.loads(state), agent, int(a), observe) for a in actions]

    def _outcome(self, history, agent, number, observe):
        is_flat = history[0] < self.flat_below
        after = [*history, number]
        team = 0.0 if is_flat else float(number)
        local = {} if is_flat else {f"{_other(agent)}/gift": 0.25}
        views = self._views(after, observe)
        return Outcome(json.dumps(after).encode(), team, local, False, False, "{}", views)

    def _views(self, history, agents):
        return {agent: (Message("user", f"{agent} sees {history}"),) for agent in agents}


def _other(agent: str) -> str:
    return "b" if agent == "a" else "a"


class Counting:
    """The candidates of each call go on counting; a greedy one says 100."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, int, float]] = []
        self.seeds: list[int] = []
        self.count = 0

    async def generate(self, request, *, timeout_s):
        num_candidates, temperature = request.num_candidates, request.sampling.temperature
        self.calls.append((request.policy, num_candidates, temperature))
        self.seeds.append(request.seed)
        numbers = [self.count + i for i in range(num_candidates)]
        self.count += num_candidates
        if temperature == 0.0:
            numbers = [100] * num_candidates
        ids = list(request.prompt[0].content.encode())
        found = [Candidate([n % 7], [-0.5], str(n), "stop") for n in numbers]
        return Generation(ids, prompt_digest(ids), found, request.policy_version, 0.0)


def job(**changes):
    algorithm = changes.pop("algorithm", {})
    return parse_spec(
        {
            "name": "t",
            "steps": 4,
            "task": {"name": "level"},
            "workflow": {"order": ["a", "b"], "max_turns": 2},
            "agents": {"a": {"policy": "p"}, "b": {"policy": "q"}},
            "policies": {"p": {"model": "m"}, "q": {"model": "m"}},
            "algorithm": {"group_size": 3, **algorithm},
            **changes,
        }
    )


async def play(
    spec, sampler, env, rollout, *, step=0, index=0, kind=pb.ROUND_KIND_TRAIN, occurrence=0, size=10
):
    mix = RewardMix(spec.reward, {"a": {"gift": 1.0}, "b": {"gift": 1.0}})
    workflow = TurnBased(spec.workflow)
    player = EpisodePlayer(
        spec,
        workflow=workflow,
        sampler=sampler,
        mix=mix,
        rollout=rollout,
        env=env,
        num_tasks=lambda split: size,
    )
    ticket = pb.Ticket(
        ticket_id="t/r/0",
        job_id="t",
        round_id="r",
        kind=kind,
        split="train",
        step=step,
        task_index=index,
        occurrence=occurrence,
        policy_versions={"p": 0, "q": 0},
    )
    return await player.play(ticket)


async def test_redraws_when_groups_are_flat_then_other_tasks_are_played_and_counted():
    env, rollout = LevelEnv(flat_below=8), Counting()
    played = await play(job(algorithm={"redraws": 64}), TreeSampler(3), env, rollout)
    assert [index for index in env.played if index >= 8] == env.played[-1:]
    assert played.episode.num_redraws == len(env.played) - 1 > 0
    assert {g.task_id for g in played.groups} == {f"level/{env.played[-1]}"}
    assert has_variance(played.groups, "observation")
    assert played.episode.num_tokens == 3 * len(rollout.calls)


async def test_redraws_when_all_tasks_are_flat_then_there_is_an_end():
    env = LevelEnv(flat_below=10)
    played = await play(job(algorithm={"redraws": 3}), TreeSampler(3), env, Counting())
    assert len(env.played) == 4
    assert played.episode.num_redraws == 3
    assert not has_variance(played.groups, "observation")


@pytest.mark.parametrize(("last", "differs"), [([1.0, 1.0], False), ([1.0, 0.0], True)])
def test_variance_when_groups_hold_turns_then_is_of_what_episodes_earned(last, differs):
    acts = [
        pb.Candidate(trajectory=n, turn=turn, reward=reward if turn else 0.0)
        for n, reward in enumerate(last)
        for turn in range(2)
    ]
    assert has_variance([pb.Group(candidates=acts)], "turns") is differs
    assert has_variance([pb.Group(candidates=acts)], "task")


def test_variance_when_returns_differ_by_rounding_alone_then_there_is_none():
    earned = [0.1 + 0.2 + 0.3, 0.1 + 0.3 + 0.2, 0.3 + 0.2 + 0.1]
    assert len(set(earned)) > 1
    returns = [pb.Candidate(trajectory=n, reward=reward) for n, reward in enumerate(earned)]
    assert not has_variance([pb.Group(candidates=returns)], "task")


class LateEnv(LevelEnv):
    """Pays 1 for the last act of the second turn and nothing before, whoever plays how."""

    def _outcome(self, history, agent, number, observe):
        after = [*history, number]
        views = self._views(after, observe)
        team = float(len(after) > 4)
        return Outcome(json.dumps(after).encode(), team, {}, False, False, "{}", views)


@pytest.mark.parametrize(
    ("params", "num_redraws"),
    [
        ({}, 2),  # each act brings 1 from it on
        ({"gamma": 0.0}, 0),  # a first act brings 0 until the next, a second 1
        ({"reward": "own_act"}, 2),  # paid 0 and 1 themselves, and bring 1 from them on
        ({"reward": "own_act", "gamma": 0.0}, 0),
    ],
)
async def test_redraws_when_rewards_are_by_turn_then_the_algorithm_says_what_is_flat(
    params, num_redraws
):
    spec = job(algorithm={"kind": "turn_grpo", "params": params, "redraws": 2})
    algorithm, mix = load_algorithm(spec.algorithm), RewardMix(spec.reward, {"a": {}, "b": {}})
    family: Any = SimpleNamespace(taskset=lambda: SimpleNamespace(size=lambda split: 10))
    parts = JobParts(spec, family, TurnBased(spec.workflow), algorithm, mix)
    ticket = pb.Ticket(round_id="r", split="train", policy_versions={"p": 0, "q": 0})
    played = await parts.player(Counting(), LateEnv()).play(ticket)
    assert played.episode.num_redraws == num_redraws


@pytest.mark.parametrize("changes", [{}, {"kind": pb.ROUND_KIND_EVAL}])
async def test_redraws_when_not_asked_for_or_evaluating_then_the_task_is_kept(changes):
    env = LevelEnv(flat_below=10)
    spec = job(algorithm={"redraws": 5} if changes else {})
    played = await play(spec, TreeSampler(3), env, Counting(), **changes)
    assert env.played == [0]
    assert played.episode.num_redraws == 0


def test_redrawn_index_when_asked_again_then_is_the_same_and_inside_the_split():
    ticket = pb.Ticket(round_id="train-00001", task_index=4)
    found = [redrawn_index(ticket, attempt, seed=1, size=50) for attempt in range(1, 30)]
    assert found == [redrawn_index(ticket, attempt, seed=1, size=50) for attempt in range(1, 30)]
    assert all(0 <= index < 50 for index in found)
    assert len(set(found)) > 10


def test_redrawn_index_when_a_split_is_small_then_no_task_comes_twice_before_all_have():
    for occurrence in range(4):
        ticket = pb.Ticket(round_id="train-00001", task_index=4, occurrence=occurrence)
        found = [redrawn_index(ticket, attempt, seed=1, size=6) for attempt in range(6)]
        assert sorted(found) == [0, 1, 2, 3, 4, 5]
        assert 0 <= redrawn_index(ticket, 6, seed=1, size=6) < 6


async def test_seeds_when_two_tickets_of_a_round_play_one_task_then_the_second_draws_anew():
    first, second, again = Counting(), Counting(), Counting()
    for occurrence, rollout in enumerate([first, second]):
        await play(job(), TreeSampler(3), LevelEnv(), rollout, occurrence=occurrence)
    await play(job(), TreeSampler(3), LevelEnv(), again, occurrence=1)
    places = [(agent, turn) for turn in range(2) for agent in "ab"]
    assert first.seeds == [derive_seed(0, "r", 0, agent, turn, 0) for agent, turn in places]
    assert not set(second.seeds) & set(first.seeds)
    assert again.seeds == second.seeds


async def test_seeds_when_tickets_are_redrawn_to_one_task_then_no_two_plays_share_any():
    spec = job(algorithm={"redraws": 8})
    rollout, env = Counting(), LevelEnv(flat_below=10)
    for index in range(3):
        await play(spec, TreeSampler(3), env, rollout, index=index)
    assert len(env.played) == 27 > len(set(env.played))
    assert len(set(rollout.seeds)) == len(rollout.seeds)


async def test_seeds_when_an_endless_split_is_redrawn_from_then_are_of_the_task_alone():
    rollout, env = Counting(), LevelEnv(flat_below=2**31)
    await play(job(algorithm={"redraws": 1}), TreeSampler(3), env, rollout, size=None)
    assert rollout.seeds[4] == derive_seed(0, "r", env.played[1], "a", 0, 0)


async def test_greedy_baseline_when_asked_for_then_an_extra_episode_is_marked_and_not_counted():
    rollout = Counting()
    played = await play(job(), ParallelSampler(2, num_baselines=1), LevelEnv(), rollout)
    assert [t for _, _, t in rollout.calls].count(0.0) == 4
    for group in played.groups:
        marks = {c.trajectory: c.is_baseline for c in group.candidates}
        assert marks == {0: False, 1: False, 2: True}
    sampled = sum(n for n in range(12)) - sum(
        n for n, call in enumerate(rollout.calls) if call[2] == 0.0
    )
    assert played.episode.team_return == pytest.approx(sampled / 2)


async def test_alternate_when_it_is_not_a_policys_turn_then_it_plays_one_candidate_unlearnt():
    spec = job(algorithm={"alternate": {"order": ["p", "q"], "every": 2}})
    learning = []
    for step in range(4):
        rollout = Counting()
        played = await play(spec, TreeSampler(3), LevelEnv(), rollout, step=step)
        learning.append({g.policy for g in played.groups})
        drawn = {policy: count for policy, count, _ in rollout.calls}
        assert drawn == {"p": 3, "q": 1} if step < 2 else {"p": 1, "q": 3}
    assert learning == [{"p"}, {"p"}, {"q"}, {"q"}]


async def test_frozen_when_played_then_its_agents_act_and_send_no_groups():
    spec = job(policies={"p": {"model": "m"}, "q": {"model": "m", "frozen": True}})
    played = await play(spec, TreeSampler(3), LevelEnv(), Counting())
    assert {g.policy for g in played.groups} == {"p"}
    assert {g.agent for g in played.episode.groups} == {"a", "b"}


async def test_turn_rewards_when_grouped_by_turns_then_each_has_what_came_until_the_next_act():
    # One episode: a says 0, b 1, a 2, b 3. The team's rewards are the numbers; each act gives the
    # other agent 1/4. b's first turn has also what came before it: a's 0 and the gift of it.
    played = await play(job(), ParallelSampler(1, grouping="turns"), LevelEnv(), Counting())
    found = {g.agent: [c.reward for c in g.candidates] for g in played.groups}
    assert found == {"a": [0 + 1 + 0.25, 2 + 3 + 0.25], "b": [0 + 0.25 + 1 + 2 + 0.25, 3.0]}


async def test_turn_rewards_when_grouped_by_acts_then_each_has_its_own_as_siblings_have():
    played = await play(job(), ParallelSampler(1, grouping="acts"), LevelEnv(), Counting())
    found = {g.agent: [c.reward for c in g.candidates] for g in played.groups}
    assert found == {"a": [0.0, 2.0], "b": [1.0, 3.0]}


async def test_joint_observation_when_a_central_critic_reads_then_it_holds_what_all_see():
    sampler = ParallelSampler(2, grouping="turns", sees_jointly=True)
    played = await play(job(), sampler, LevelEnv(), Counting())
    (group,) = [g for g in played.groups if g.agent == "b"]
    first = group.candidates[0].joint_observation
    assert first == "[a]\nuser: a sees [0, 0]\n\n[b]\nuser: b sees [0, 0]\n\n[b] acts"
    assert all(not c.joint_observation for g in played.episode.groups for c in g.candidates)
