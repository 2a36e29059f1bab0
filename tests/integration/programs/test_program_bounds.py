"""A program's ``max_tokens`` only lowers what the job's spec allows an answer."""

from typing import Any

from program_world import SEATS, begun, params_of, program

from troupe.candidates import GenerateRequest, Generation, text_generation
from troupe.episodes.build import load_parts
from troupe.episodes.dryrun import ticket_of
from troupe.episodes.local import LocalEnv
from troupe.spec import parse_spec
from troupe.tasks.actions import CutAction
from troupe.tasks.family import Observation, bound_of

ALLOWED = 12


class Noting:
    """A policy that says 1, and notes how long it may answer."""

    def __init__(self) -> None:
        self.allowed: list[tuple[str, int]] = []

    async def generate(
        self, request: GenerateRequest[Observation], *, timeout_s: float
    ) -> Generation:
        self.allowed.append((request.policy, request.sampling.max_new_tokens))
        texts: Any = [(str(k), "stop") for k in range(request.num_candidates)]
        return text_generation(request, texts, (0, 0))


async def test_bound_when_a_program_sends_one_then_the_lower_of_it_and_the_specs_holds() -> None:
    document: dict[str, Any] = {
        "name": "bounded",
        "steps": 1,
        "task": {"name": "program", "params": params_of("bounded")},
        "workflow": {"kind": "self_play", "order": list(SEATS), "max_turns": 4},
        "agents": {seat: {"policy": seat} for seat in SEATS},
        "policies": {seat: {"model": "m"} for seat in SEATS},
        "algorithm": {"group_size": 2},
        "sampling": {"max_new_tokens": ALLOWED},
        "eval": {"num_tasks": 0},
    }
    spec = parse_spec(document)
    parts, policy = load_parts(spec), Noting()
    with LocalEnv(parts.family) as env:
        await parts.player(policy, env).play(ticket_of(spec, 0))
    assert policy.allowed == [("solver", 2), ("verifier", ALLOWED)]


def test_bound_when_a_call_waits_then_a_replay_keeps_it() -> None:
    with program("bounded") as environment:
        state = begun(environment)
        assert bound_of(environment.observe(state, "solver")) == 2
        environment.worlds.close()
        after = environment.step(state, "solver", "1").state
        assert bound_of(environment.observe(after, "verifier")) == 1000


def test_answer_when_a_bound_cut_it_then_the_program_is_told_also_in_a_replay() -> None:
    with program("ends", max_answer_chars=16) as environment:
        state = environment.step(begun(environment), "solver", CutAction("12")).state
        assert environment.step(state, "verifier", "12").info["answer"] == "length stop"
        environment.worlds.close()
        assert environment.step(state, "verifier", "1" * 17).info["answer"] == "length length"
        whole = environment.step(begun(environment), "solver", "12").state
        assert environment.step(whole, "verifier", "12").info["answer"] == "stop stop"
