"""How long an environment has to answer an episode."""

from typing import Any

from troupe.episodes.build import load_parts
from troupe.episodes.dryrun import ticket_of
from troupe.episodes.local import LocalEnv, ScriptedRollout
from troupe.episodes.ports import Outcome
from troupe.spec.job import JobSpec

ONE_S = 7.0
SPEC = JobSpec.model_validate(
    {
        "name": "patient",
        "steps": 1,
        "task": {"name": "plan_path", "params": {"size": 5}},
        "workflow": {"order": ["tool", "planner"], "max_turns": 2},
        "agents": {"tool": {"policy": "p"}, "planner": {"policy": "p"}},
        "policies": {"p": {"model": "m"}},
        "algorithm": {"kind": "at_grpo", "group_size": 4},
        "limits": {"env_timeout_s": ONE_S},
    }
)


class TimedEnv(LocalEnv):
    """Keeps how many actions it was asked to judge, and in how many seconds."""

    asked: list[tuple[int, float]]

    async def step(self, **asked: Any) -> list[Outcome]:
        self.asked.append((len(asked["actions"]), asked["timeout_s"]))
        return await super().step(**asked)


async def test_step_when_it_has_several_candidates_then_has_the_time_of_each() -> None:
    parts = load_parts(SPEC)
    with TimedEnv(parts.family) as env:
        env.asked = []
        rollout = ScriptedRollout(parts.family, slips=True, observe=env.observe)
        await parts.player(rollout, env).play(ticket_of(SPEC, 3))
    assert {count for count, _ in env.asked} == {4}
    assert all(timeout_s == count * ONE_S for count, timeout_s in env.asked)
