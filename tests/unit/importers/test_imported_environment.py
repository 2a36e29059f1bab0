import json
from collections.abc import Callable
from typing import Any

import pytest
from guests import rollouts

from troupe.errors import InvalidArgumentError, UnavailableError
from troupe.tasks.family import Task
from troupe_tasks.adapters.pool import Worlds
from troupe_tasks.adapters.record import decode
from troupe_tasks.importers.environment import ImportedEnvironment
from troupe_tasks.importers.process import SpentError
from troupe_tasks.importers.world import Bounds, Guests, RolloutWorld, Row

ROWS = (Row("train", 0, "k0"), Row("train", 1, "k1"))
ADD = {"type": "function", "function": {"name": "add", "parameters": {}}}


def asking(text: str) -> dict[str, Any]:
    return {"model": "m", "messages": [{"role": "user", "content": text}]}


class GuestHere:
    """A guest without a process: the same rollouts, in this one."""

    def __init__(self, play: Any) -> None:
        self._rollouts = rollouts.Rollouts(play)
        self.generation = 1
        self.failing: list[Exception] = []

    def ask(self, op: str, *, cpu_s: float, timeout_s: float, **arguments: Any) -> Any:
        if self.failing:
            raise self.failing.pop()
        if op == "start":
            return self._rollouts.start(arguments["index"], arguments["seed"])
        return json.loads(json.dumps(getattr(self._rollouts, op)(**arguments)))

    def tell(self, op: str, *, timeout_s: float, **arguments: Any) -> None:
        self.ask(op, cpu_s=1, timeout_s=1, **arguments)

    def close(self) -> None:
        self._rollouts.loop.close()


async def sums(life: Any, row: Any) -> dict[str, Any]:
    """The solver calls a tool, then answers; the critic is asked last."""
    messages: list[Any] = [{"role": "user", "content": f"row {row}"}]
    done = await life.ask("solver", {"model": "m", "messages": messages, "tools": [ADD]})
    message = done["choices"][0]["message"]
    called = message.get("tool_calls") or []
    if message["content"] == "fail":
        return {"failure": "EnvError: no"}
    verdict = await life.ask(
        "critic", {"model": "m", "messages": [{"role": "user", "content": "ok?"}]}
    )
    is_right = verdict["choices"][0]["message"]["content"] == "yes"
    return {
        "agents": {
            "solver": {"total": len(called) / 2, "terms": {"calls": len(called), "odd": 1}},
            "critic": {"total": float(is_right), "terms": {"said": float(is_right)}},
        }
    }


@pytest.fixture
def made() -> Any:
    guests: list[GuestHere] = []

    def make(play: Any = sums, max_calls: int = 9) -> tuple[ImportedEnvironment, GuestHere]:
        guest = GuestHere(play)
        guests.append(guest)
        terms = {"solver": ["calls"], "critic": ["said"]}
        held: Any = guest
        bounds = Bounds(1, 1, success=1.5, terms=terms)
        worlds = Worlds(lambda: RolloutWorld(held, ROWS, bounds))
        return ImportedEnvironment(
            ("solver", "critic"), ROWS, worlds, Guests([held]), max_calls
        ), guest

    yield make
    for guest in guests:
        guest.close()


Make = Callable[..., tuple[ImportedEnvironment, GuestHere]]
TASK = Task("t", "train", 0, b'{"row": 0, "key": "k0"}')
CALL = '<tool_call>{"name": "add", "arguments": {"x": 1}}</tool_call>'


def test_agent_when_it_is_asked_then_sees_messages_and_tools_and_nobody_else(
    made: Make,
) -> None:
    environment, _ = made()
    state = environment.reset(TASK)
    system, user = environment.observe(state, "solver")
    assert '"name": "add"' in system.content
    assert user.content == "row 0"
    assert environment.observe(state, "critic") == ()
    with pytest.raises(InvalidArgumentError, match="no agent"):
        environment.observe(state, "nobody")


def test_episode_when_it_ends_then_pays_each_agent_by_the_names_of_its_rewards(made: Make) -> None:
    environment, _ = made()
    state = environment.step(environment.reset(TASK), "solver", CALL).state
    done = environment.step(state, "critic", "yes")
    assert done.done
    assert done.success
    assert done.team_reward == 1.5
    assert done.local_rewards == {"own": 1.0, "said": 1.0, "solver/own": 0.5, "solver/calls": 1.0}
    assert done.info["rewards"]["solver"]["odd"] == 1
    after = environment.step(done.state, "critic", "yes")
    assert (after.done, after.team_reward) == (True, 0.0)


def test_candidates_when_judged_from_one_state_then_none_sees_another(
    made: Make,
) -> None:
    environment, _ = made()
    state = environment.step(environment.reset(TASK), "solver", "no tool").state
    paid = [environment.step(state, "critic", text).team_reward for text in ("no", "yes", "no")]
    assert paid == [0.0, 1.0, 0.0]


def test_state_when_another_process_has_it_then_goes_on_by_replay(made: Make) -> None:
    first, _ = made()
    state = first.step(first.reset(TASK), "solver", CALL).state
    other, _ = made()
    assert other.step(state, "critic", "yes") == first.step(state, "critic", "yes")


def test_environment_when_an_answer_breaks_it_then_the_team_is_paid_nothing(made: Make) -> None:
    environment, _ = made()
    done = environment.step(environment.reset(TASK), "solver", "fail")
    assert (done.done, done.success, done.team_reward) == (True, False, 0.0)
    assert done.info["failure"] == "EnvError: no"


def test_environment_when_an_answer_is_too_hard_then_the_episode_ends_unpaid(made: Make) -> None:
    environment, guest = made()
    state = environment.reset(TASK)
    guest.failing = [SpentError("took 30 s")]
    done = environment.step(state, "solver", CALL)
    assert (done.done, done.team_reward, done.info["failure"]) == (True, 0.0, "too_hard")


def test_replay_when_it_is_slower_than_the_first_play_then_is_retryable(made: Make) -> None:
    first, _ = made()
    state = first.step(first.reset(TASK), "solver", CALL).state
    other, guest = made()
    guest.failing = [SpentError("took 30 s")]
    with pytest.raises(UnavailableError, match="took 30 s"):
        other.step(state, "critic", "yes")
    assert other.step(state, "critic", "yes").success


def test_rollout_when_its_process_was_replaced_then_is_begun_again(made: Make) -> None:
    environment, guest = made()
    state = environment.reset(TASK)
    guest.generation += 1
    with pytest.raises(UnavailableError, match="begins again"):
        environment.step(state, "solver", CALL)
    assert not environment.step(state, "solver", CALL).done


def test_episode_when_it_has_too_many_calls_then_ends(made: Make) -> None:
    async def endless(life: Any, row: Any) -> dict[str, Any]:
        while True:
            await life.ask("solver", asking("?"))

    environment, _ = made(endless, max_calls=2)
    state = environment.step(environment.reset(TASK), "solver", "a").state
    done = environment.step(state, "solver", "b")
    assert (done.done, done.info["failure"]) == (True, "too_many_calls")


def test_agent_when_it_is_not_asked_then_changes_nothing_for_ever(made: Make) -> None:
    environment, _ = made(max_calls=2)
    state = environment.reset(TASK)
    for _ in range(4):
        done = environment.step(state, "critic", "hello")
        assert done.team_reward == 0.0
        state = done.state
    assert done.done
    assert decode(state).history == ()


def test_row_when_it_is_another_here_then_is_refused(made: Make) -> None:
    environment, _ = made()
    with pytest.raises(InvalidArgumentError, match="another one here"):
        environment.reset(Task("t", "train", 0, b'{"row": 1, "key": "k0"}'))


def test_prompt_when_it_holds_an_image_then_is_refused_by_its_type(made: Make) -> None:
    async def pictured(life: Any, row: Any) -> dict[str, Any]:
        part = {"type": "image_url", "image_url": {"url": "data:"}}
        await life.ask("solver", {"model": "m", "messages": [{"role": "user", "content": [part]}]})
        return {"failure": "unseen"}

    environment, _ = made(pictured)
    with pytest.raises(InvalidArgumentError, match="'image_url' is not text"):
        environment.reset(TASK)
