"""The in-process environment and its scripted player."""

import threading
from random import Random
from typing import Any

import pytest

from troupe import SimpleTask, Transition
from troupe.candidates import GenerateRequest
from troupe.episodes.local import EngineRollout, LocalEnv, ScriptedRollout
from troupe.errors import DeadlineError, InvalidArgumentError
from troupe.spec.job import SamplingSpec
from troupe.tasks.family import Message, Observation
from troupe.tasks.registry import load_family

AGENT = "planner"


def asking(observation: Observation, num_candidates: int = 1) -> GenerateRequest[Observation]:
    return GenerateRequest("any policy", 0, observation, num_candidates, SamplingSpec(), seed=1)


async def test_scripted_player_when_it_demonstrates_then_solves_what_the_environment_shows():
    family = load_family("plan_path", {"size": 4})
    with LocalEnv(family) as env:
        start = await env.reset(split="test", index=3, observe=[AGENT], timeout_s=1.0)
        state, seen, is_done = start.state, start.observations[AGENT], False
        for _ in range(8):
            drawn = await ScriptedRollout(family).generate(asking(seen), timeout_s=1.0)
            [outcome] = await env.step(
                state=state,
                agent=AGENT,
                actions=[drawn.candidates[0].text],
                observe=[AGENT],
                timeout_s=1.0,
            )
            state, seen, is_done = outcome.state, outcome.observations[AGENT], outcome.is_done
            if is_done:
                break
        assert is_done and outcome.is_success


async def test_scripted_player_when_it_slips_then_only_the_first_candidate_demonstrates():
    family = load_family("plan_path", {"size": 4})
    with LocalEnv(family) as env:
        start = await env.reset(split="test", index=3, observe=[AGENT], timeout_s=1.0)
        request = asking(start.observations[AGENT], 6)
        careful = await ScriptedRollout(family).generate(request, timeout_s=1.0)
        slipping = await ScriptedRollout(family, slips=True).generate(request, timeout_s=1.0)
        assert slipping.candidates[0] == careful.candidates[0]
        assert slipping.candidates[1:] != careful.candidates[1:]


async def test_scripted_player_when_the_workflow_rewrote_the_observation_then_says_so():
    family = load_family("plan_path", {"size": 4})
    with LocalEnv(family) as env:
        start = await env.reset(split="test", index=3, observe=[AGENT], timeout_s=1.0)
        rewritten = tuple(start.observations[AGENT])
        assert rewritten == start.observations[AGENT]
        with pytest.raises(InvalidArgumentError, match="let a model play"):
            await ScriptedRollout(family).generate(asking(rewritten), timeout_s=1.0)


class Hanging(SimpleTask):
    """Makes a state of a request once ``free`` is set."""

    agents = (AGENT,)
    free: threading.Event

    def draw(self, rng: Random) -> str:
        return ""

    def request(self, text: str) -> str:
        self.free.wait(60)
        return text

    def observe(self, state: Any, agent: str) -> str:
        return state

    def step(self, state: Any, agent: str, action: str) -> Transition:
        return self.transition(state, 0.0)


async def test_threaded_env_when_the_code_of_a_task_hangs_then_its_deadline_holds():
    family = Hanging()
    family.free = threading.Event()
    with LocalEnv(family, threaded=True) as env:
        try:
            with pytest.raises(DeadlineError):
                await env.begin_request("w1", observe=[AGENT], timeout_s=0.01)
        finally:
            family.free.set()
        start = await env.begin_request("w1", observe=[AGENT], timeout_s=60)
    assert start.observations[AGENT][0].text == "w1"


class SlowTemplate:
    """An engine that renders once ``free`` is set."""

    def __init__(self) -> None:
        self.free = threading.Event()

    def render(self, policy: str, messages: Observation) -> list[int]:
        self.free.wait(10)
        return [1]

    async def generate(self, request: GenerateRequest[Any]) -> Any:
        raise AssertionError("the deadline is over")


async def test_engine_when_a_long_prompt_takes_long_to_render_then_its_deadline_holds():
    engine = SlowTemplate()
    rollout = EngineRollout(engine)  # type: ignore[arg-type]
    try:
        with pytest.raises(DeadlineError):
            await rollout.generate(asking((Message("user", "x " * 100_000),)), timeout_s=0.01)
    finally:
        engine.free.set()
