"""The caller's functions as an environment: turns, rewards, ends and failures."""

import json
from functools import partial
from typing import Any

import pytest

from troupe.errors import InvalidArgumentError, RewardFailedError
from troupe.training.dataset import TaskRows
from troupe.training.functions import CallerEnvironment, Functions, State

ROWS = TaskRows.of([{"prompt": "one"}, {"prompt": "two"}], [{"prompt": "three"}])
TEAM = {"a": "Be short.", "b": ""}


def environment(
    functions: Functions, agents: dict[str, str] | None = None, max_turns: int = 1
) -> CallerEnvironment:
    return CallerEnvironment(ROWS, agents or TEAM, functions, max_turns)


def played(env: CallerEnvironment, *answers: tuple[str, str]) -> list[Any]:
    state: State = env.reset("train", 0)
    judgements: list[Any] = []
    for agent, text in answers:
        judgements.append(env.step(state, agent, text))
        state = judgements[-1]["state"]
    return judgements


def test_reset_when_no_observe_then_shows_instruction_and_prompt() -> None:
    state = environment(Functions(lambda row, texts: 0.0)).reset("validation", 0)
    assert state["shown"] == {
        "a": [{"role": "system", "content": "Be short."}, {"role": "user", "content": "three"}],
        "b": [{"role": "user", "content": "three"}],
    }


def test_step_when_turn_is_not_over_then_pays_nothing_and_does_not_ask() -> None:
    calls: list[dict[str, str]] = []

    def reward(row: dict[str, Any], texts: dict[str, str]) -> float:
        calls.append(texts)
        return 2.0

    first, second = played(environment(Functions(reward)), ("a", "x"), ("b", "y"))
    assert (first["team_reward"], first["state"]["is_done"]) == (0.0, False)
    assert (second["team_reward"], second["state"]["is_done"]) == (2.0, True)
    assert calls == [{"a": "x", "b": "y"}]


def test_step_when_reward_is_by_agent_then_becomes_their_terms() -> None:
    functions = Functions(lambda row, texts: {"a": 1, "b": -0.5})
    last = played(environment(functions), ("a", "x"), ("b", "y"))[-1]
    assert last["team_reward"] == 0.0
    assert last["local_rewards"] == {"a/reward": 1.0, "b/reward": -0.5}


def test_step_when_several_turns_then_history_grows_and_each_turn_pays() -> None:
    functions = Functions(
        lambda row, texts: len(texts["a"]),
        observe=lambda row, agent, history: f"{agent} {[h['text'] for h in history]}",
    )
    judgements = played(environment(functions, max_turns=2), *[("a", "x"), ("b", "y")] * 2)
    assert [j["team_reward"] for j in judgements] == [0, 1, 0, 1]
    assert judgements[1]["state"]["shown"]["b"][0]["content"] == "b ['x', 'y']"
    assert [j["state"]["is_done"] for j in judgements] == [False, False, False, True]


@pytest.mark.parametrize("end", [{"done": lambda row, history: True}, {"success": 1.0}])
def test_step_when_done_or_solved_then_ends_before_max_turns(end: dict[str, Any]) -> None:
    functions = Functions(lambda row, texts: 1.0, observe=lambda *_: "go", **end)
    last = played(environment(functions, max_turns=5), ("a", "x"), ("b", "y"))[-1]
    assert last["state"]["is_done"]
    assert last["state"]["is_success"] is ("success" in end)


def test_step_when_episode_is_over_then_stays_over_and_pays_nothing() -> None:
    env = environment(Functions(lambda row, texts: 1.0))
    *_, last = played(env, ("a", "x"), ("b", "y"))
    again = env.step(last["state"], "a", "more")
    assert again == {"state": last["state"], "team_reward": 0.0, "local_rewards": {}}


class Several:
    """As a tensor of several elements, which is no number."""

    def __float__(self) -> float:
        raise RuntimeError("a Tensor with 2 elements cannot be converted to Scalar")


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (Several(), "gave .*Several"),
        (None, "gave None, which is not a finite number"),
        (float("nan"), "gave nan"),
        ("1", "gave '1'"),
        ({"a": 1.0, "c": 1.0}, "names c, which are no agents"),
        ({"a": float("inf")}, "gave inf"),
        ({}, "gave {}, without a number for a, b"),
        ({"a": 1.0}, "gave {'a': 1.0}, without a number for b"),
    ],
)
def test_reward_when_it_is_no_number_then_says_so_with_the_row(value: Any, message: str) -> None:
    env = environment(Functions(lambda row, texts: value))
    with pytest.raises(RewardFailedError, match=f"{message}.*row {{'prompt': 'one'}}"):
        played(env, ("a", "x"), ("b", "y"))


def test_reward_when_it_raises_then_names_the_line_and_keeps_the_exception() -> None:
    def reward(row: dict[str, Any], texts: dict[str, str]) -> float:
        return 1 / len(row["missing"])

    env = environment(Functions(reward))
    place = r"KeyError: 'missing' \(at .*_functions.py, line \d+, in reward: `return 1 / len"
    with pytest.raises(RewardFailedError, match=place):
        played(env, ("a", "x"), ("b", "y"))
    assert isinstance(env.cause_of("dropped; reward() raised KeyError: 'missing'"), KeyError)


def test_cause_when_the_job_failed_for_another_reason_then_is_none() -> None:
    env = environment(Functions(fail))
    assert env.cause_of("reward() raised LookupError: mine") is None
    with pytest.raises(RewardFailedError):
        played(env, ("a", "x"), ("b", "y"))
    assert env.cause_of("the trainer died") is None
    assert isinstance(env.cause_of("reward() raised LookupError: mine"), LookupError)


@pytest.mark.parametrize(
    ("functions", "form"),
    [
        ({"reward": lambda row: 0}, r"reward\(row, texts\)"),
        ({"reward": 3}, r"reward\(row, texts\)"),
        ({"reward": max, "observe": lambda row: ""}, r"observe\(row, agent, history\)"),
        ({"reward": max, "done": lambda: True}, r"done\(row, history\)"),
        ({"reward": max, "success": lambda row: True}, r"success\(row, texts\)"),
    ],
)
def test_functions_when_arguments_do_not_fit_then_says_the_form(
    functions: dict[str, Any], form: str
) -> None:
    with pytest.raises(InvalidArgumentError, match=form):
        Functions(**functions)


@pytest.mark.parametrize(
    "shown", [None, 3, "", [], [{"role": "bot", "content": "x"}], [{"role": "user"}]]
)
def test_observe_when_no_prompt_then_is_refused_before_the_job(shown: Any) -> None:
    env = environment(Functions(lambda row, texts: 0.0, observe=lambda *_: shown))
    with pytest.raises(
        RewardFailedError, match=r"observe\(\) gave .* \(at .*row {'prompt': 'one'}"
    ):
        env.check()


def fail(*_: Any) -> Any:
    raise LookupError("mine")


@pytest.mark.parametrize("name", ["reward", "observe", "done", "success"])
def test_function_when_it_raises_then_message_has_function_line_and_row(name: str) -> None:
    functions: dict[str, Any] = {"reward": lambda row, texts: 0.0, "observe": lambda *_: "go"}
    functions[name] = fail
    with pytest.raises(RewardFailedError) as error:
        played(environment(Functions(**functions), max_turns=2), ("a", "x"), ("b", "y"))
    assert f"{name}() raised LookupError: mine (at tests" in error.value.message
    assert "_functions.py, line " in error.value.message
    assert "in fail: `raise LookupError(\"mine\")`); row {'prompt': 'one'}" in error.value.message


def test_function_when_it_exits_then_is_an_error_of_the_function() -> None:
    def leave(row: dict[str, Any], texts: dict[str, str]) -> float:
        raise SystemExit(3)

    env = environment(Functions(leave))
    with pytest.raises(RewardFailedError, match=r"reward\(\) raised SystemExit: 3 \(at tests"):
        played(env, ("a", "x"), ("b", "y"))
    assert isinstance(env.failure, SystemExit)


def test_functions_when_they_change_what_they_are_given_then_later_calls_see_nothing_of_it() -> (
    None
):
    seen: list[str] = []

    def changing(answer: object, row: dict[str, Any], *given: Any) -> Any:
        seen.append(json.dumps([row, *given]))
        row["prompt"].append("more")
        given[-1].clear()
        return answer

    functions = Functions(
        partial(changing, 1.0),
        observe=partial(changing, "go"),
        done=lambda row, history: bool(history[0].clear()),
        success=partial(changing, False),
    )
    env = CallerEnvironment(TaskRows.of([{"prompt": ["one"]}], []), TEAM, functions, max_turns=2)
    first, again = (played(env, ("a", "x"), ("b", "y")) for _ in range(2))
    assert first == again
    assert first[-1]["state"]["history"][0] == {"agent": "a", "text": "x"}
    assert seen[: len(seen) // 2] == seen[len(seen) // 2 :]


@pytest.mark.parametrize("name", ["done", "success"])
@pytest.mark.parametrize("value", [None, "yes", 1])
def test_done_and_success_when_not_a_truth_then_say_so_with_the_row(name: str, value: Any) -> None:
    def forgetful(row: dict[str, Any], given: Any) -> Any:
        return value

    functions: dict[str, Any] = {"reward": lambda row, texts: 0.0, "observe": lambda *_: "go"}
    functions[name] = forgetful
    with pytest.raises(RewardFailedError) as error:
        played(environment(Functions(**functions), max_turns=2), ("a", "x"), ("b", "y"))
    assert f"{name}() gave {value!r}, which is neither True nor False (at" in error.value.message
    assert "row {'prompt': 'one'}" in error.value.message


def test_step_when_values_are_scalars_of_numpy_then_counts_them() -> None:
    numpy = pytest.importorskip("numpy")
    functions = Functions(
        lambda row, texts: numpy.array(0.5), success=lambda row, texts: numpy.bool_(True)
    )
    last = played(environment(functions), ("a", "x"), ("b", "y"))[-1]
    assert (last["team_reward"], last["state"]["is_success"]) == (0.5, True)


@pytest.mark.parametrize("kind", ["float64", "float32", "int64"])
def test_step_when_success_is_a_number_of_numpy_then_the_judgement_is_json(kind: str) -> None:
    numpy = pytest.importorskip("numpy")
    functions = Functions(lambda row, texts: 1.0, success=getattr(numpy, kind)(1))
    last = played(environment(functions), ("a", "x"), ("b", "y"))[-1]
    assert json.loads(json.dumps(last))["state"]["is_success"] is True


def test_functions_when_success_is_nan_then_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="success is NaN"):
        Functions(lambda row, texts: 1.0, success=float("nan"))


@pytest.mark.parametrize(("rewards", "solved"), [((1.0, 0.5), False), ((1.0, 1.0), True)])
def test_step_when_success_is_a_number_then_the_mean_over_agents_must_reach_it(
    rewards: tuple[float, float], solved: bool
) -> None:
    of_agents = dict(zip(("a", "b"), rewards, strict=True))
    functions = Functions(lambda row, texts: of_agents, success=1.0)
    last = played(environment(functions), ("a", "x"), ("b", "y"))[-1]
    assert last["state"]["is_success"] is solved


def test_check_when_several_turns_have_no_observe_then_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="max_turns > 1 needs observe"):
        environment(Functions(lambda row, texts: 0.0), max_turns=2).check()


def test_check_when_a_late_row_has_no_prompt_then_is_refused() -> None:
    rows = TaskRows.of([{"prompt": "x"}] * 20 + [{"question": "y"}], [])
    env = CallerEnvironment(rows, TEAM, Functions(lambda row, texts: 0.0))
    with pytest.raises(InvalidArgumentError, match=r"no 'prompt' \(its fields: question"):
        env.check()


def test_step_when_agent_is_unknown_then_is_an_error() -> None:
    env = environment(Functions(lambda row, texts: 0.0))
    with pytest.raises(InvalidArgumentError, match="no agent 'z'"):
        env.step(env.reset("train", 0), "z", "x")


@pytest.mark.parametrize(("split", "index"), [("train", 2), ("train", -1), ("test", 0), ("no", 0)])
def test_reset_when_there_is_no_such_row_then_is_an_error(split: str, index: int) -> None:
    with pytest.raises(InvalidArgumentError, match="no row"):
        environment(Functions(lambda row, texts: 0.0)).reset(split, index)
