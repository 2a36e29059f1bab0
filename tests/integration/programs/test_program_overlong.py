"""A prompt that fills its model's context: the team's failure, of the run that led to it alone."""

import json
from collections.abc import Sequence
from typing import Any

import pytest
from program_world import SEATS, params_of

from troupe.candidates import GenerateRequest, Generation, text_generation
from troupe.episodes.build import load_parts
from troupe.episodes.dryrun import ticket_of
from troupe.episodes.local import LocalEnv
from troupe.episodes.player import Played
from troupe.errors import PromptTooLongError
from troupe.spec import parse_spec
from troupe.tasks.family import Observation


class Short:
    """A policy whose context holds few characters; the solver's answers are of given lengths."""

    def __init__(self, lengths: Sequence[int], context: int) -> None:
        self._lengths = list(lengths)
        self._context = context

    async def generate(
        self, request: GenerateRequest[Observation], *, timeout_s: float
    ) -> Generation:
        shown = len(str(request.prompt[-1].content))
        if shown > self._context:
            raise PromptTooLongError(f"{shown} tokens, the context has {self._context}")
        is_solver = request.policy == "solver"
        lengths = [self._lengths.pop(0) if is_solver else 2 for _ in range(request.num_candidates)]
        texts: Any = [("1" * length, "stop") for length in lengths]
        return text_generation(request, texts, (0, 0))


async def _played(lengths: Sequence[int], kind: str, *, context: int = 30) -> Played:
    """An episode of ``echoes``: the verifier is shown twice the solver's answer."""
    spec = parse_spec(
        {
            "name": "overlong",
            "steps": 1,
            "task": {"name": "program", "params": params_of("echoes")},
            "workflow": {"kind": "self_play", "order": list(SEATS), "max_turns": 4},
            "agents": {seat: {"policy": seat} for seat in SEATS},
            "policies": {seat: {"model": "m"} for seat in SEATS},
            "algorithm": {"kind": kind, "group_size": 4, "redraws": 0},
            "eval": {"num_tasks": 0},
        }
    )
    parts = load_parts(spec)
    with LocalEnv(parts.family) as env:
        return await parts.player(Short(lengths, context), env).play(ticket_of(spec, 0))


async def test_prompt_when_it_fills_the_context_then_that_run_alone_fails_unpaid() -> None:
    played = await _played([2, 20, 2, 2], "grpo")
    assert dict(played.episode.program_ends) == {"answered": 3, "prompt_too_long": 1}
    groups = {group.agent: group for group in played.groups}
    assert [len(groups[seat].candidates) for seat in SEATS] == [4, 3]
    [failed] = [c for c in groups["solver"].candidates if c.is_done]
    assert (failed.text, failed.team_reward, failed.reward) == ("1" * 20, 0.0, 0.0)
    info = json.loads(failed.info_json)
    assert info["failure"] == "prompt_too_long"
    assert info["message"] == "40 tokens, the context has 30"


async def test_prompt_when_a_tree_goes_on_to_one_that_is_too_long_then_it_ends_there() -> None:
    played = await _played([20, 20, 20, 20], "at_grpo")
    assert dict(played.episode.program_ends) == {"prompt_too_long": 1}
    assert [group.agent for group in played.groups] == ["solver"]
    assert not played.episode.is_success


async def test_prompt_when_the_programs_first_is_too_long_then_the_team_is_not_blamed() -> None:
    with pytest.raises(PromptTooLongError, match="the context has 5"):
        await _played([2, 2, 2, 2], "grpo", context=5)
