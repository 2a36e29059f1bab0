"""Cooperative code: the published staged reward by hand, paid as progress and bounded."""

import json
from pathlib import Path
from random import Random

import pytest
from code_world import ADD, DOUBLE, ProcessSandbox
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from troupe.errors import InvalidArgumentError
from troupe_tasks.code import CodeParams
from troupe_tasks.code.cooperative import CodeCooperative, CooperativeEnvironment
from troupe_tasks.code.problem import Problem, write_problems
from troupe_tasks.code.staged import score, structure, with_helper
from troupe_tasks.code.text import program_answer

AUX = "def aux(v):\n    return 2 * v"
USES = """def double(values):
    out = []
    for v in values:
        out.append(aux(v))
    return out"""
ALONE = "def double(values):\n    return [2 * v for v in values]"
THIN = "def double(values):\n    return aux(values)"
IGNORES = "def double(values):\n    aux(1)\n    return [2 * v for v in values]"


@pytest.mark.parametrize(
    ("helper", "main", "pass_rate", "total"),
    [
        ("", "", 0.0, 0.0),
        (AUX, "", 0.0, 0.4),
        ("def aux(v):\n    print(v)", "", 0.0, 0.0),
        ("", "def double(v):\n    print(v)", 0.0, 0.0),
        ("", ALONE, 1.0, 0.6 + 0.5 + 1.0),
        (AUX, ALONE, 1.0, 0.4 + 0.6 + 0.5 + 1.0),
        (AUX, USES, 0.0, 0.4 + 0.6 + 0.5),
        (AUX, USES, 0.5, 0.4 + 0.6 + 0.5 + 0.5 + 0.5 + 1.0),
        (AUX, USES, 1.0, 4.0),
        (AUX, THIN, 1.0, 3.0),
        (AUX, "def double(values):\n    x = aux(values)\n    return x", 1.0, 3.0),
        (AUX, IGNORES, 1.0, 3.5),
        ("def aux(:", ALONE, 0.0, 0.6),
        ("", USES, 1.0, 0.6 + 0.5 + 1.0),
    ],
)
def test_score_for_each_stage_then_equals_the_published_sum(
    helper: str, main: str, pass_rate: float, total: float
) -> None:
    assert score(structure(helper, main, "double"), pass_rate) == pytest.approx(total)


def test_with_helper_then_each_result_goes_through_it() -> None:
    assert with_helper("def f(x):\n    return x + 1", "f") == "def f(x):\n    return aux(x + 1)\n"


@pytest.fixture(scope="module")
def world(
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[CodeCooperative, CooperativeEnvironment]:
    return _made([DOUBLE], tmp_path_factory.mktemp("coop"))


def _made(problems: list[Problem], folder: Path) -> tuple[CodeCooperative, CooperativeEnvironment]:
    write_problems(folder / "train.jsonl", problems)
    family = CodeCooperative(CodeParams(data=folder))
    return family, family.environment_in(ProcessSandbox())


def _first(world: tuple[CodeCooperative, CooperativeEnvironment]) -> bytes:
    return world[1].reset(world[0].taskset().task("train", 0))


def test_step_when_both_parts_are_good_then_pays_four_in_all_and_ends(
    world: tuple[CodeCooperative, CooperativeEnvironment],
) -> None:
    helped = world[1].step(_first(world), "helper", program_answer(AUX))
    assert (helped.team_reward, helped.done) == (pytest.approx(0.4), False)
    done = world[1].step(helped.state, "main", program_answer(USES))
    assert done.team_reward == pytest.approx(3.6)
    assert (done.done, done.success) == (True, True)
    json.dumps(dict(done.info))


def test_step_when_the_main_part_does_it_alone_then_goes_on_without_more_pay(
    world: tuple[CodeCooperative, CooperativeEnvironment],
) -> None:
    alone = world[1].step(_first(world), "main", program_answer(ALONE))
    assert (alone.team_reward, alone.done, alone.success) == (pytest.approx(2.1), False, True)
    again = world[1].step(alone.state, "main", program_answer(ALONE))
    assert again.team_reward == 0.0
    assert world[1].step(again.state, "helper", "nothing").team_reward == 0.0


def test_observe_then_each_sees_the_other_part_and_no_hidden_test(
    world: tuple[CodeCooperative, CooperativeEnvironment],
) -> None:
    state = world[1].step(_first(world), "helper", program_answer(AUX)).state
    state = (
        world[1].step(state, "main", program_answer("def double(v):\n    return [aux(1)]")).state
    )
    for agent in ("helper", "main"):
        prompt = "\n".join(message.content for message in world[1].observe(state, agent))
        assert "return 2 * v" in prompt
        assert "return [aux(1)]" in prompt
        assert "assert double([1, 2]) == [2, 4]" in prompt
        assert "140014" not in prompt
        assert "70007" not in prompt


answers = st.one_of(
    st.text(max_size=30),
    st.sampled_from([program_answer(text) for text in (AUX, USES, ALONE, THIN, IGNORES, "x = 1")]),
)


@settings(
    max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.lists(st.tuples(st.sampled_from(["helper", "main"]), answers), max_size=5))
def test_return_when_anything_is_played_then_stays_under_the_bound(
    world: tuple[CodeCooperative, CooperativeEnvironment], plays: list[tuple[str, str]]
) -> None:
    state, total, best = _first(world), 0.0, 0.0
    for agent, action in plays:
        done = world[1].step(state, agent, action)
        state, total = done.state, total + done.team_reward
        best = max(best, done.info["score"])
    assert total <= CodeCooperative.return_bound + 1e-9
    assert total == pytest.approx(best)


def test_demonstrate_when_both_follow_it_then_the_published_maximum_is_reached(
    world: tuple[CodeCooperative, CooperativeEnvironment],
) -> None:
    state, total = _first(world), 0.0
    for agent in ("helper", "main"):
        done = world[1].step(state, agent, world[0].demonstrate(state, agent, Random(0)))
        state, total = done.state, total + done.team_reward
    assert total == pytest.approx(4.0)
    assert done.success


def test_random_action_when_played_then_passes_nothing(
    world: tuple[CodeCooperative, CooperativeEnvironment],
) -> None:
    state = _first(world)
    for agent in ("helper", "main"):
        done = world[1].step(state, agent, world[0].random_action(state, agent, Random(1)))
        state = done.state
    assert done.info["score"] == pytest.approx(1.5)
    assert not done.success


def test_taskset_when_built_in_then_holds_functions_only_and_stdin_data_is_refused(
    tmp_path: Path,
) -> None:
    family = CodeCooperative(CodeParams())
    taskset = family.taskset()
    size = taskset.size("train")
    assert size is not None
    assert 15 <= size < 40
    env = family.environment_in(ProcessSandbox())
    for index in (0, size - 1):
        env.reset(taskset.task("train", index))
    wrong, _ = _made([ADD], tmp_path)
    with pytest.raises(InvalidArgumentError, match="'call'"):
        wrong.taskset().task("train", 0)
    with pytest.raises(InvalidArgumentError, match="helper, main"):
        env.step(env.reset(taskset.task("train", 0)), "coder", "x")
    with pytest.raises(InvalidArgumentError, match="sandbox"):
        family.environment()
