"""Joint actions on an environment whose returns can be followed by hand.

Agent a always offers 1 and 2, agent b 3 and 5. A number is its own team reward; a is paid its
number once more.
"""

import json
from collections import defaultdict
from dataclasses import replace

import pytest

from troupe.api.records.v1 import records_pb2 as pb
from troupe.candidates import Candidate, Generation
from troupe.episodes.player import EpisodePlayer
from troupe.episodes.ports import Outcome, Start
from troupe.errors import UnavailableError
from troupe.ids import prompt_digest
from troupe.rewards.mix import RewardMix
from troupe.samplers.joint import JointSampler
from troupe.spec import parse_spec
from troupe.spec.issues import SpecInvalidError
from troupe.tasks.family import Message
from troupe.workflows.simultaneous import Simultaneous
from troupe.workflows.turn_based import TurnBased

OFFERS = {"a": (1, 2), "b": (3, 5)}


class SumEnv:
    """The state is the list of executed numbers; done, and solved, at a sum of ``limit``."""

    def __init__(self, limit: int = 1000) -> None:
        self.limit = limit
        self.judged: list[tuple[str, list[int], list[str]]] = []

    async def reset(self, *, split, index, observe, timeout_s):
        return Start(f"sum/{split}/{index}", b"[]", self._views([], observe))

    async def step(self, *, state, agent, actions, observe, timeout_s):
        history = json.loads(state)
        self.judged.append((agent, history, list(actions)))
        return [self._outcome([*history, int(a)], int(a), observe) for a in actions]

    def _outcome(self, history, number, observe):
        done = sum(history) >= self.limit
        local = {"size": float(number)}
        state = json.dumps(history).encode()
        return Outcome(state, float(number), local, done, done, "{}", self._views(history, observe))

    def _views(self, history, agents):
        return {agent: (Message("user", f"{agent} sees {history}"),) for agent in agents}


class Offers:
    def __init__(self, fails_at: int = -1) -> None:
        self.prompts: dict[str, list[str]] = defaultdict(list)
        self.seeds: list[int] = []
        self.fails_at = fails_at

    async def generate(self, request, *, timeout_s):
        text, num_candidates = request.prompt[0].content, request.num_candidates
        if len(self.seeds) == self.fails_at:
            raise UnavailableError("the replica went away")
        self.prompts[text[0]].append(text)
        self.seeds.append(request.seed)
        ids = list(text.encode())
        found = [Candidate([n], [-0.5], str(n), "stop") for n in OFFERS[text[0]][:num_candidates]]
        return Generation(ids, prompt_digest(ids), found, request.policy_version, 0.0)


def job(turns: int = 1, size: int = 2):
    return parse_spec(
        {
            "name": "t",
            "steps": 1,
            "task": {"name": "sum"},
            "workflow": {"kind": "simultaneous", "order": ["a", "b"], "max_turns": turns},
            "agents": {"a": {"policy": "p"}, "b": {"policy": "q"}},
            "policies": {"p": {"model": "m"}, "q": {"model": "m"}},
            "algorithm": {"kind": "magrpo", "group_size": size, "joint": {}},
        }
    )


async def play(sampler, *, turns=1, env=None, rollout=None, kind=pb.ROUND_KIND_TRAIN, mix=None):
    spec = job(turns)
    player = EpisodePlayer(
        spec,
        workflow=Simultaneous(spec.workflow),
        sampler=sampler,
        mix=RewardMix(spec.reward, mix or {"a": {"size": 1.0}, "b": {"size": 0.0}}),
        rollout=rollout or Offers(),
        env=env or SumEnv(),
    )
    ticket = pb.Ticket(
        ticket_id="t/train-00000/00000",
        job_id="t",
        round_id="train-00000",
        kind=kind,
        split="train",
        policy_versions={"p": 4, "q": 4},
    )
    return await player.play(ticket)


def rewards(played):
    return {g.group_id: [c.reward for c in g.candidates] for g in played.groups}


TICKET = "t/train-00000/00000"


async def test_aligned_when_one_turn_then_the_kth_candidates_share_a_reward():
    played = await play(JointSampler(2, "aligned", 1.0))
    # (1, 3) is 4 for the team and (2, 5) is 7; a gets 1 and 2 on top.
    assert rewards(played) == {f"{TICKET}/a/t00": [5.0, 9.0], f"{TICKET}/b/t00": [4.0, 7.0]}
    assert {g.node for g in played.groups} == {f"{TICKET}/n"}
    assert {g.policy for g in played.groups} == {"p", "q"}
    assert all(g.key == pb.GROUP_KEY_OBSERVATION and len(g.prompts) == 1 for g in played.groups)


async def test_cross_when_one_turn_then_a_candidate_has_the_mean_of_its_joint_actions():
    played = await play(JointSampler(2, "cross", 1.0))
    # 4, 6 | 5, 7: a's first is in 4 and 6, b's first in 4 and 5.
    assert rewards(played) == {f"{TICKET}/a/t00": [6.0, 8.0], f"{TICKET}/b/t00": [4.5, 6.5]}


async def test_two_turns_when_discounted_then_the_mean_of_the_successors_runs_back():
    played = await play(JointSampler(2, "aligned", 0.5), turns=2)
    # b: 4 and 7, plus half of their mean; a: 5 and 9, plus half of 7.
    assert rewards(played) == {
        f"{TICKET}/a/t00": [8.5, 12.5],
        f"{TICKET}/b/t00": [6.75, 9.75],
        f"{TICKET}/a/t01/n0": [5.0, 9.0],
        f"{TICKET}/b/t01/n0": [4.0, 7.0],
        f"{TICKET}/a/t01/n1": [5.0, 9.0],
        f"{TICKET}/b/t01/n1": [4.0, 7.0],
    }
    assert played.episode.num_turns == 2
    assert played.episode.team_return == 5.5 + 5.5
    assert played.episode.num_tokens == 3 * 2 * 2


async def test_tree_when_agents_act_at_once_then_none_sees_the_others_action_of_its_turn():
    rollout = Offers()
    await play(JointSampler(2, "aligned", 1.0), turns=2, rollout=rollout)
    assert rollout.prompts["b"] == ["b sees []", "b sees [1, 3]", "b sees [2, 5]"]
    assert len(set(rollout.seeds)) == 6


async def test_cross_when_executed_then_equal_beginnings_are_judged_once():
    env = SumEnv()
    await play(JointSampler(2, "cross", 1.0), env=env)
    assert env.judged == [
        ("a", [], ["1", "2"]),
        ("b", [1], ["3", "5"]),
        ("b", [2], ["3", "5"]),
    ]


async def test_joint_action_when_it_ends_the_episode_on_the_way_then_the_others_do_not_act():
    env = SumEnv(limit=2)
    played = await play(JointSampler(2, "aligned", 1.0), turns=3, env=env)
    # a's 2 ends the second joint action alone; the first ends with b's 3.
    assert rewards(played) == {f"{TICKET}/a/t00": [5.0, 4.0], f"{TICKET}/b/t00": [4.0, 2.0]}
    assert played.episode.is_success
    assert ("b", [2], ["5"]) not in env.judged


def marked(played):
    return {
        g.group_id.removeprefix(f"{TICKET}/"): [c.text for c in g.candidates if c.is_chosen]
        for g in played.episode.groups
    }


class Opposed(SumEnv):
    """The team earns the first agent's number alone; b is paid for small numbers of its own."""

    def _outcome(self, history, number, observe):
        is_first = len(history) % 2 == 1
        local = {} if is_first else {"size": -10.0 * number}
        outcome = super()._outcome(history, number, observe)
        return replace(outcome, team_reward=float(number * is_first), local_rewards=local)


@pytest.mark.parametrize(("mode", "pair"), [("aligned", ["1", "3"]), ("cross", ["2", "3"])])
async def test_chosen_when_agents_prefer_different_joint_actions_then_it_is_a_pair_that_was_played(
    mode, pair
):
    env = Opposed()
    played = await play(JointSampler(2, mode, 1.0), env=env, mix={"a": {}, "b": {"size": 1.0}})
    # Alone a prefers 2 and b 3; aligned plays (1, 3), worth -29 to b, and (2, 5), worth -48.
    assert marked(played) == {"a/t00": [pair[0]], "b/t00": [pair[1]]}
    assert any(
        history == [int(pair[0])] and pair[1] in actions
        for agent, history, actions in env.judged
        if agent == "b"
    )


async def test_chosen_when_the_tree_has_two_turns_then_it_marks_one_line_of_play():
    played = await play(JointSampler(2, "aligned", 1.0), turns=2)
    assert marked(played) == {
        "a/t00": ["2"],
        "b/t00": ["5"],
        "a/t01/n0": [],
        "b/t01/n0": [],
        "a/t01/n1": ["2"],
        "b/t01/n1": ["5"],
    }


async def test_chosen_when_an_agent_did_not_act_in_the_best_joint_action_then_none_of_it_is():
    env = Opposed(limit=2)
    played = await play(JointSampler(2, "aligned", 1.0), env=env, mix={"a": {}, "b": {"size": 1.0}})
    # a's 2 ends the episode, which spares b its loss.
    assert marked(played) == {"a/t00": ["2"], "b/t00": []}


async def test_evaluation_when_agents_act_at_once_then_it_is_one_episode_of_the_same_game():
    rollout = Offers()
    played = await play(
        JointSampler(2, "cross", 1.0), turns=2, rollout=rollout, kind=pb.ROUND_KIND_EVAL
    )
    assert played.groups == []
    assert rollout.prompts["b"] == ["b sees []", "b sees [1, 3]"]


async def test_tree_when_a_call_fails_then_the_one_error_is_raised():
    with pytest.raises(UnavailableError, match="went away"):
        await play(JointSampler(2, "aligned", 1.0), turns=2, rollout=Offers(fails_at=3))


def _player(spec, workflow):
    return EpisodePlayer(
        spec,
        workflow=workflow(spec.workflow),
        sampler=JointSampler(2, "aligned", 1.0),
        mix=RewardMix(spec.reward, {"a": {}, "b": {}}),
        rollout=Offers(),
        env=SumEnv(),
    )


@pytest.mark.parametrize(
    ("workflow", "turns", "message"),
    [(TurnBased, 1, "use kind simultaneous"), (Simultaneous, 12, "8190 joint actions")],
)
async def test_tree_when_the_workflow_does_not_fit_then_says_what_to_change(
    workflow, turns, message
):
    with pytest.raises(SpecInvalidError, match=f"(?i){message}"):
        await _player(job(turns), workflow).play(
            pb.Ticket(ticket_id="x", split="train", policy_versions={"p": 0, "q": 0})
        )
