"""A planner that calls a worker any number of times: whose returns the groups hold."""

import json
from typing import Any

import pytest

from troupe.api.records.v1 import records_pb2 as pb
from troupe.candidates import Candidate, Generation, group_outcome
from troupe.episodes.lead import check_lead
from troupe.episodes.player import EpisodePlayer
from troupe.episodes.ports import Outcome, Start
from troupe.episodes.redraw import has_variance
from troupe.ids import prompt_digest
from troupe.rewards.mix import RewardMix
from troupe.samplers.led import LedSampler
from troupe.spec import parse_spec
from troupe.spec.issues import SpecInvalidError
from troupe.tasks.family import Message
from troupe.workflows.self_play import SelfPlay
from troupe_trainer.learn.validation import Expected, fault


class Delegating:
    """The planner's number is how often the worker is called; the team is paid that number."""

    async def reset(self, *, split, index, observe, timeout_s):
        return Start("delegating/train/0", b"[]", self._seen([], observe))

    async def step(self, *, state, agent, actions, observe, timeout_s):
        return [self._outcome([*json.loads(state), int(a)], agent, observe) for a in actions]

    def _outcome(self, said, agent, observe):
        done = len(said) > said[0]
        team = float(said[0]) if done else 0.0
        local = {"said": 1.0} if agent == "worker" else {}
        state = json.dumps(said).encode()
        return Outcome(state, team, local, done, done, "{}", self._seen(said, observe))

    def _seen(self, said, agents):
        asked = "worker" if said else "planner"
        return {a: (Message("user", f"{a}: {said}"),) if a == asked else () for a in agents}


class Counting:
    """The planner says 0, 2, 1 in its three rollouts, the worker 5."""

    def __init__(self):
        self._numbers = iter((0, 2, 1))

    async def generate(self, request, *, timeout_s):
        is_planner = request.prompt[0].content.startswith("planner")
        text = str(next(self._numbers)) if is_planner else "5"
        ids = list(request.prompt[0].content.encode())
        said = Candidate([1], [-0.5], text, "stop")
        return Generation(ids, prompt_digest(ids), [said], request.policy_version, 0.0)


def spec(**changes: Any):
    return parse_spec(
        {
            "name": "t",
            "steps": 1,
            "task": {"name": "delegating"},
            "workflow": {"kind": "self_play", "order": ["planner", "worker"], "max_turns": 4},
            "agents": {"planner": {"policy": "p"}, "worker": {"policy": "p"}},
            "policies": {"p": {"model": "m"}},
            "algorithm": {"kind": "matpo", "group_size": 3, "params": {"lead": "planner"}},
            **changes,
        }
    )


async def played() -> list[pb.Group]:
    job = spec()
    player = EpisodePlayer(
        job,
        workflow=SelfPlay(job.workflow),
        sampler=LedSampler(3, "planner"),
        mix=RewardMix(job.reward, {"planner": {}, "worker": {"said": 0.5}}),
        rollout=Counting(),
        env=Delegating(),
    )
    ticket = pb.Ticket(
        ticket_id="t/train-00000/00000",
        job_id="t",
        round_id="train-00000",
        kind=pb.ROUND_KIND_TRAIN,
        split="train",
        policy_versions={"p": 0},
    )
    return list((await player.play(ticket)).groups)


async def test_groups_when_a_lead_is_named_then_all_hold_its_returns() -> None:
    planner, worker = await played()
    assert (planner.agent, worker.agent) == ("planner", "worker")
    returns = [0.0, 2.0, 1.0]
    assert list(planner.lead_returns) == list(worker.lead_returns) == returns
    assert [c.reward for c in planner.candidates] == returns
    assert sorted(c.trajectory for c in worker.candidates) == [1, 1, 2]
    assert [c.reward for c in worker.candidates] == [
        returns[c.trajectory] for c in worker.candidates
    ]
    assert group_outcome(worker).lead_returns == (0.0, 2.0, 1.0)


async def test_group_when_a_worker_was_called_once_then_it_is_trained_and_not_flat() -> None:
    _, worker = await played()
    del worker.candidates[1:]
    del worker.prompts[1:]
    worker.prompts[0].digest = prompt_digest(worker.prompts[0].token_ids)
    worker.candidates[0].prompt_digest = worker.prompts[0].digest
    expected = Expected("t", "p", 0, 0, 256)
    assert has_variance([worker], "task")
    assert fault(worker, expected) is None
    worker.ClearField("lead_returns")
    assert fault(worker, expected) == "too_few_candidates"


def test_lead_when_it_is_no_agent_then_is_refused() -> None:
    with pytest.raises(SpecInvalidError, match="no agent is called 'plan'"):
        check_lead(spec(), LedSampler(3, "plan"))
