"""Environments of the libraries themselves, at the releases that scripts/importer_venvs.py names.

`make test-importers` makes their interpreters; without them the tests are skipped.
"""

import json
from pathlib import Path
from random import Random
from typing import Any

import pytest

from benchmarks import importer_rows
from troupe.conformance import CheckLimits, Reference, check_family
from troupe.errors import InvalidArgumentError
from troupe.tasks.registry import load_family

ROOT = Path(__file__).parents[2]
VENVS = ROOT / ".venv-importers"
LIMITS = CheckLimits(
    seconds=0.2, num_tasks=2, check_seconds=3, num_draws=6, split_sample=40, num_processes=1,
    huge_chars=2000,
)  # fmt: skip
CALL = '<tool_call>{"name": "%s", "arguments": %s}</tool_call>'

pytestmark = [pytest.mark.importers, pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture
def rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    files = importer_rows.write(tmp_path)
    monkeypatch.setenv("TROUPE_IMPORT_HOME", str(tmp_path / "home"))
    return files


def python_of(library: str) -> str:
    path = VENVS / library / "bin" / "python"
    if not path.exists():
        pytest.skip(f"no {path.relative_to(ROOT)}: make test-importers")
    return str(path)


def play(family: Any, answers: list[str], index: int = 0) -> Any:
    """The last transition of an episode in which whoever is asked gives the next answer."""
    environment = family.environment()
    state = environment.reset(family.taskset().task("train", index))
    done: Any = None
    for answer in answers:
        agent = next(a for a in family.agents if environment.observe(state, a))
        done = environment.step(state, agent, answer)
        state = done.state
    return done


@pytest.mark.parametrize(
    ("library", "task", "params"),
    [
        ("reasoning_gym", "reasoning_gym:chain_sum", {}),
        ("reasoning_gym", "reasoning_gym:countdown", {}),
        ("reasoning_gym", "reasoning_gym:rush_hour", {}),
        ("verifiers_v0", "verifiers:tool_test", {}),
        ("verifiers_v0", "verifiers:sentence_repeater", {}),
        ("verifiers_v1", "verifiers:kuhn_poker", {"max_rows": 100}),
    ],
)
def test_environment_when_the_kit_tries_to_break_it_then_holds(
    library: str, task: str, params: dict[str, Any], rows: dict[str, str]
) -> None:
    params = {**params, "python": python_of(library)}
    if library != "reasoning_gym":
        params["datasets"] = rows
    report = check_family(
        load_family(task, params), reference=Reference(task, params), limits=LIMITS
    )
    assert report.is_ok, report.text()


@pytest.mark.parametrize(
    ("dataset", "answer"),
    [
        ("countdown", "__import__('os').system('touch /tmp/x')"),
        ("countdown", "9**9**9**9"),
        ("polynomial_multiplication", "().__class__.__bases__"),
        ("n_queens", "[c for c in ().__class__.__base__.__subclasses__()]"),
        ("spiral_matrix", "__import__('time').sleep(99)"),
    ],
)
def test_answer_when_it_is_a_program_then_runs_nothing_and_is_wrong(
    dataset: str, answer: str
) -> None:
    family = load_family(f"reasoning_gym:{dataset}", {"python": python_of("reasoning_gym")})
    done = play(family, [f"<answer>{answer}</answer>"])
    assert done.done
    assert done.team_reward <= 0.05
    environment, rng = family.environment(), Random(0)
    state = environment.reset(family.taskset().task("train", 1))
    right: Any = family
    assert environment.step(state, "solver", right.demonstrate(state, "solver", rng)).success


def test_question_when_another_process_draws_it_then_is_the_same() -> None:
    params = {"python": python_of("reasoning_gym"), "seed": 5}
    first, second = (load_family("reasoning_gym:zebra_puzzles", params) for _ in "ab")
    for index in (3, 0, 1):
        assert first.taskset().task("test", index) == second.taskset().task("test", index)


def test_tools_when_a_team_calls_them_then_their_results_are_seen(rows: dict[str, str]) -> None:
    family = load_family("verifiers:glossary", {"python": python_of("verifiers_v1")})
    environment = family.environment()
    state = environment.reset(family.taskset().task("train", 0))
    asked = environment.observe(state, "agent")
    name = asked[-1].content.split('"')[1]
    call = CALL % ("facts_lookup", json.dumps({"name": name}))
    state = environment.step(state, "agent", call).state
    fact = environment.observe(state, "agent")[-1].content
    assert "<tool_response>" in fact
    done = environment.step(state, "agent", fact)
    assert (done.done, done.team_reward, done.success) == (True, 1.0, True)
    assert done.local_rewards["looked_up"] == 1.0


def test_hand_when_two_agents_play_it_then_each_is_paid_its_own() -> None:
    params = {"python": python_of("verifiers_v1"), "rewards": {"player0": ["payoff"]}}
    family = load_family("verifiers:kuhn_poker", params)
    done = play(family, ["[check]", "[bet]", "[fold]"])
    assert done.done
    assert done.team_reward == 0.0
    assert done.local_rewards["own"] == -1.0 == done.local_rewards["payoff"]
    assert done.local_rewards["player1/own"] == 1.0


def test_words_when_the_right_tools_are_called_then_the_rubric_pays(rows: dict[str, str]) -> None:
    family = load_family("verifiers:tool_test", {"python": python_of("verifiers_v0")})
    environment = family.environment()
    state = environment.reset(family.taskset().task("train", 0))
    prompt = environment.observe(state, "agent")[-1].content
    names = [name for name in ("tool_A", "tool_B", "tool_C", "tool_D") if name in prompt]
    done = environment.step(state, "agent", "".join(CALL % (name, "{}") for name in names))
    assert (done.team_reward, done.local_rewards["tool_call_reward_func"]) == (1.0, 1.0)


@pytest.mark.parametrize(
    ("library", "task", "why"),
    [
        ("verifiers_v0", "verifiers:self_reward", "JudgeRubric, which asks gpt-4.1-mini"),
        ("verifiers_v1", "verifiers:interception", "asks a model to judge .its task's 'judge'"),
        ("verifiers_v1", "verifiers:code_golf", "runs programs to judge .its 'evaluate'."),
        ("verifiers_v1", "verifiers:os", "no installed package that uses verifiers"),
        ("reasoning_gym", "verifiers:wordle", "verifiers is not installed"),
        ("verifiers_v1", "reasoning_gym:chain_sum", "reasoning-gym is not installed"),
        ("reasoning_gym", "reasoning_gym:not_there", "no data set 'not_there'"),
    ],
)
def test_environment_when_it_cannot_be_a_task_then_says_why(
    library: str, task: str, why: str, rows: dict[str, str]
) -> None:
    params: dict[str, Any] = {"python": python_of(library)}
    if task.startswith("verifiers"):
        params["datasets"] = {**rows, "openai/gsm8k": rows["openai/gsm8k"]}
    with pytest.raises(InvalidArgumentError, match=why):
        load_family(task, params)
