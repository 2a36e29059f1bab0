import pytest

from troupe.spec.job import WorkflowSpec
from troupe.workflows.simultaneous import Simultaneous
from troupe.workflows.turn_based import TurnBased
from troupe.workflows.workflow import Action, AtOnceWorkflow


class Ledger:
    """An environment that writes down who acted on what, and ends after ``limit`` acts."""

    def __init__(self, limit: int) -> None:
        self.limit, self.acts = limit, []

    @property
    def is_done(self) -> bool:
        return len(self.acts) >= self.limit

    def observe(self, agent: str) -> str:
        return f"{agent} after {len(self.acts)}"


class Seat:
    def __init__(self, agent: str, env: Ledger) -> None:
        self.agent, self.env = agent, env

    async def act(self, observation: str) -> Action:
        self.env.acts.append(observation)
        return Action("", 0.0)


async def run(limit: int, turns: int) -> list[str]:
    env = Ledger(limit)
    workflow = Simultaneous(WorkflowSpec(order=["a", "b"], max_turns=turns))
    await workflow.run({name: Seat(name, env) for name in "ab"}, env)  # type: ignore[arg-type]
    return env.acts


async def test_simultaneous_when_run_then_all_act_on_the_state_before_the_turn():
    assert await run(limit=9, turns=2) == ["a after 0", "b after 0", "a after 2", "b after 2"]


async def test_simultaneous_when_the_environment_is_done_then_nobody_acts_any_more():
    assert await run(limit=3, turns=5) == ["a after 0", "b after 0", "a after 2"]


@pytest.mark.parametrize(("kind", "expected"), [(Simultaneous, True), (TurnBased, False)])
def test_at_once_when_asked_then_only_the_workflow_that_hides_actions_is(kind, expected):
    assert isinstance(kind(WorkflowSpec(order=["a"])), AtOnceWorkflow) is expected
