"""Which draws a served teacher scores, and where its scores go."""

import json
from collections.abc import Sequence
from typing import Any

import pytest

from troupe.api.records.v1 import records_pb2 as pb
from troupe.candidates import Candidate, Generation, ScoreRequest
from troupe.episodes.player import EpisodePlayer, Played
from troupe.episodes.ports import Outcome, Start
from troupe.errors import DeadlineError, UnavailableError
from troupe.ids import prompt_digest
from troupe.rewards.mix import RewardMix
from troupe.samplers.joint import JointSampler
from troupe.samplers.parallel import ParallelSampler
from troupe.samplers.sampler import Sampler
from troupe.samplers.tree import TreeSampler
from troupe.spec import JobSpec, parse_spec
from troupe.tasks.family import Message
from troupe.workflows.load import load_workflow

TAUGHT = {"model": "small", "teacher": "large", "teacher_replicas": 1}


class Counter:
    """Pays each action's number; agents see how many acts there were."""

    async def reset(self, *, split: Any, index: int, observe: Any, timeout_s: float) -> Start:
        return Start(f"counter/{index}", b"[]", self._views([], observe))

    async def step(
        self, *, state: bytes, agent: str, actions: Any, observe: Any, timeout_s: float
    ) -> list[Outcome]:
        return [self._outcome([*json.loads(state), int(a)], observe) for a in actions]

    async def observations(self, *, state: bytes, observe: Any, timeout_s: float) -> Any:
        return self._views(json.loads(state), observe)

    def _outcome(self, acts: list[int], observe: Any) -> Outcome:
        views = self._views(acts, observe)
        return Outcome(json.dumps(acts).encode(), float(acts[-1]), {}, False, False, "{}", views)

    def _views(self, acts: list[int], agents: Any) -> dict[str, tuple[Message, ...]]:
        return {agent: (Message("user", f"{agent} sees {acts}"),) for agent in agents}


class Policy:
    """Each candidate is another number, of as many tokens."""

    async def generate(self, request: Any, *, timeout_s: float) -> Generation:
        ids = list(request.prompt[0].content.encode())
        found = [
            Candidate([n + 1] * (n + 1), [-0.5] * (n + 1), str(n), "stop")
            for n in range(request.num_candidates)
        ]
        return Generation(ids, prompt_digest(ids), found, request.policy_version, 0.0)


class Teacher:
    """Thinks each token worth its number's negative; fails ``failing`` times."""

    def __init__(self, failing: int = 0) -> None:
        self.requests: list[ScoreRequest] = []
        self.failing = failing

    async def score(self, request: ScoreRequest, *, timeout_s: float) -> Sequence[Sequence[float]]:
        assert timeout_s > 0
        self.requests.append(request)
        if len(self.requests) <= self.failing:
            raise UnavailableError("no rollout replica serves the teacher")
        return [[-float(token) for token in ids] for ids in request.completions]


def job(**changes: Any) -> JobSpec:
    body: dict[str, Any] = {
        "name": "t",
        "steps": 4,
        "task": {"name": "counter"},
        "workflow": {"order": ["a", "b"], "max_turns": 2},
        "agents": {"a": {"policy": "p"}, "b": {"policy": "q"}},
        "policies": {"p": TAUGHT, "q": TAUGHT},
        "algorithm": {"kind": "distill", "group_size": 3},
    }
    return parse_spec(body | changes)


async def play(
    spec: JobSpec,
    sampler: Sampler,
    teacher: Teacher | None,
    *,
    kind: pb.RoundKind = pb.ROUND_KIND_TRAIN,
) -> Played:
    return await player_of(spec, sampler, teacher).play(ticket(kind))


def player_of(spec: JobSpec, sampler: Sampler, teacher: Teacher | None) -> EpisodePlayer:
    return EpisodePlayer(
        spec,
        workflow=load_workflow(spec.workflow),
        sampler=sampler,
        mix=RewardMix(spec.reward, {"a": {}, "b": {}}),
        rollout=Policy(),
        env=Counter(),
        teacher=teacher,
    )


def ticket(kind: pb.RoundKind) -> pb.Ticket:
    return pb.Ticket(
        ticket_id="t/r/0",
        job_id="t",
        round_id="r",
        kind=kind,
        split="train",
        policy_versions={"p": 3, "q": 3},
    )


def candidates(played: Played) -> list[pb.Candidate]:
    return [candidate for group in played.groups for candidate in group.candidates]


SAMPLERS = {
    "tree": TreeSampler(3),
    "parallel": ParallelSampler(3),
    "joint": JointSampler(2, "aligned", 1.0),
}


@pytest.mark.parametrize("sampler", SAMPLERS)
async def test_draws_when_their_teacher_is_served_then_each_token_has_what_it_thinks(
    sampler: str,
) -> None:
    workflow = "simultaneous" if sampler == "joint" else "turn_based"
    spec = job(workflow={"kind": workflow, "order": ["a", "b"], "max_turns": 2})
    teacher = Teacher()
    played = await play(spec, SAMPLERS[sampler], teacher)
    scored = candidates(played)
    assert scored
    for candidate in scored:
        assert list(candidate.teacher_logprobs) == [-float(t) for t in candidate.token_ids]
    assert {request.policy for request in teacher.requests} == {"p-teacher", "q-teacher"}
    assert {request.policy_version for request in teacher.requests} == {0}
    prompts = {tuple(p.token_ids) for g in played.groups for p in g.prompts}
    assert {tuple(request.prompt_token_ids) for request in teacher.requests} == prompts
    shown = [c for group in played.episode.groups for c in group.candidates]
    assert shown and not any(c.teacher_logprobs for c in shown)


async def test_draws_when_evaluated_or_greedy_or_without_a_port_then_nobody_is_asked() -> None:
    teacher = Teacher()
    await play(job(), TreeSampler(3), teacher, kind=pb.ROUND_KIND_EVAL)
    assert not teacher.requests
    played = await play(job(), ParallelSampler(2, num_baselines=1), teacher)
    assert {bool(c.teacher_logprobs) for c in candidates(played) if c.is_baseline} == {False}
    assert all(c.teacher_logprobs for c in candidates(played) if not c.is_baseline)
    assert not any(c.teacher_logprobs for c in candidates(await play(job(), TreeSampler(3), None)))


async def test_draws_when_not_learnt_from_or_taught_by_the_trainer_then_are_not_scored() -> None:
    own = {"model": "small", "teacher": "large"}
    teacher = Teacher()
    played = await play(job(policies={"p": TAUGHT, "q": own}), TreeSampler(3), teacher)
    assert {request.policy for request in teacher.requests} == {"p-teacher"}
    by_policy = {g.policy: [bool(c.teacher_logprobs) for c in g.candidates] for g in played.groups}
    assert by_policy == {"p": [True] * 3, "q": [False] * 3}
    turns = {"kind": "distill", "group_size": 3, "alternate": {"order": ["p", "q"], "every": 1}}
    teacher = Teacher()
    await play(job(algorithm=turns), TreeSampler(3), teacher)
    assert {request.policy for request in teacher.requests} == {"p-teacher"}


async def test_deadline_when_a_teacher_is_slow_then_a_later_call_is_given_more_time() -> None:
    class Slow(Teacher):
        async def score(self, request: ScoreRequest, *, timeout_s: float) -> Any:
            given.append(timeout_s)
            raise DeadlineError("no answer")

    given: list[float] = []
    spec = job(sampling={"max_new_tokens": 600})
    player = player_of(spec, TreeSampler(3), Slow())
    for _ in range(3):
        with pytest.raises(DeadlineError):
            await player.play(ticket(pb.ROUND_KIND_TRAIN))
    assert given[0] == given[1] < given[2]


async def test_draws_when_no_replica_scores_them_then_the_play_fails_and_can_be_tried_again() -> (
    None
):
    teacher = Teacher(failing=1)
    with pytest.raises(UnavailableError) as failed:
        await play(job(), TreeSampler(3), teacher)
    assert failed.value.retryable
    assert candidates(await play(job(), TreeSampler(3), teacher))
