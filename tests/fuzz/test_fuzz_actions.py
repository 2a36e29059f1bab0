"""Whatever an agent writes is a move with a reward: no parser of a task raises or takes long."""

import math
from collections.abc import Callable
from functools import lru_cache
from random import Random
from typing import Any

import pytest
from fuzzing import bounded, fuzzed, hostile_texts
from hypothesis import given
from hypothesis import strategies as st

from troupe import plugins
from troupe.data.dataset import RefusedRowError
from troupe.errors import InvalidArgumentError
from troupe.tasks.family import SandboxedTaskFamily, TaskFamily
from troupe.tasks.registry import load_family
from troupe_tasks.adapters.actions import FreeText, JsonObject, NamedActions, ParsedBy
from troupe_tasks.code import answers as code_answers
from troupe_tasks.code import asserts, checkers, fences, published, values
from troupe_tasks.code.problem import Problem, TestCase
from troupe_tasks.hanabi import text as hanabi
from troupe_tasks.math import boxed, form, literal
from troupe_tasks.plan_path import text as plan_path
from troupe_tasks.puzzles.answers import read_answer
from troupe_tasks.tic_tac_toe import text as tic_tac_toe
from troupe_tasks.writing import words

PROGRAM = "```python\nprint(sum(map(int, input().split())))\n```"
STDIN_TESTS = "Test Input:\n```\n1 2\n```\nTest Output:\n```\n3\n```\n"
CALL_TESTS = "```python\nassert double([1, 2]) == [2, 4]\nassert double([]) == []\n```"
BOXED = r"so \boxed{\frac{1}{2}} or \boxed{17{,}000.50\%}"
LATEX = r"\left(\frac{1}{2}, x^{12}\right] \cup \{3!, \text{ or } -4\}"
CASE = TestCase(input="([1, 2],)", output="[2, 4]")
CALL = Problem(
    id="double",
    kind="call",
    entry_point="double",
    statement="Write double(values).",
    public_tests=(CASE,),
    hidden_tests=(TestCase(input="([],)", output="[]"),),
    spare_tests=(TestCase(input="([3],)", output="[6]"),),
    references=("def double(values):\n    return [2 * v for v in values]\n",),
    wrong_programs=("def double(values):\n    return values\n",),
    split="train",
)
STDIN = CALL.model_copy(
    update={
        "kind": "stdin",
        "public_tests": (TestCase(input="1 2\n", output="3\n"),),
        "hidden_tests": (TestCase(input="4 5\n", output="9\n"),),
    }
)


def _in_own_words(*errors: type[Exception]) -> Callable[[Callable[[str], Any]], Any]:
    """A parser that may refuse with these errors, its own, and with no other."""

    def of(parse: Callable[[str], Any]) -> Callable[[str], Any]:
        def guarded(text: str) -> Any:
            try:
                return parse(text)
            except errors:
                return None

        return guarded

    return of


_value_error = _in_own_words(values.UnreadableError)
_refused_row = _in_own_words(RefusedRowError)

PARSERS: dict[str, tuple[Callable[[str], Any], tuple[str, ...]]] = {
    "puzzle answer": (
        lambda text: read_answer("place", "([a-h][1-8])", text, 8),
        ("so: place b4, c1", "place (a1, a2) and Place: [h8]"),
    ),
    "puzzle word": (
        lambda text: read_answer("move", "(up|down|left|right)", text, 8),
        ("move up, left; down", "move [right]"),
    ),
    "plan path": (
        lambda text: [plan_path.read_answer(agent, text, 8) for agent in ("tool", "planner")],
        ("simulate R R D", "plan U, L.", "plan\nPlan: R R"),
    ),
    "plan path search": (plan_path.read_search, ("search b3", "simulate R then search a1")),
    "tic tac toe": (tic_tac_toe.read_move, ("play a1", "I play b2.")),
    "hanabi": (hanabi.read_move, ("hint player_2 red", "play 3", "discard 1")),
    "fenced blocks": (lambda text: list(fences.blocks(text)), (PROGRAM, STDIN_TESTS)),
    "program": (lambda text: code_answers.read_program(text, 4000), (PROGRAM,)),
    "stdin tests": (lambda text: code_answers.read_tests(STDIN, text, 4), (STDIN_TESTS,)),
    "call tests": (lambda text: code_answers.read_tests(CALL, text, 4), (CALL_TESTS,)),
    "literal": (_value_error(values.parse_literal), ("[1, (2.5, 'x'), {'a': None}]", "1e999")),
    "arguments": (_value_error(values.parse_arguments), ("([1, 2], 'x')",)),
    "value": (_value_error(values.decode_text), ('[1, {"f": "nan"}]', '{"t": [1, 2]}')),
    "printed answer": (
        lambda text: [checkers.text_is_right(c, STDIN.public_tests[0], text) for c in _CHECKERS],
        ("3\n", " 3.0000001 "),
    ),
    "assert list": (
        lambda text: _syntax(lambda: asserts.cases_of_asserts([text], ["double"], "")),
        ("assert double([1]) == [2]",),
    ),
    "check function": (
        lambda text: _refused_row(lambda source: published.check_cases(source, "double"))(text),
        ("def check(candidate):\n    assert candidate([1]) == [2]\n",),
    ),
    "boxed answer": (boxed.read_boxed, (BOXED,)),
    "printed number": (boxed.read_printed, ("x\n42\n", BOXED)),
    "number": (
        lambda text: literal.read_literal(text[: boxed.MAX_ANSWER_CHARS]),
        (r"\$1{,}250.50", r"40^\circ", r"\frac{6}{8}\%", "3 cm", "1e99"),
    ),
    "form": (
        lambda text: form.is_one_answer("(1, 2)", text[: boxed.MAX_ANSWER_CHARS]),
        (LATEX, "x = 3"),
    ),
    "assignment": (
        lambda text: form.without_assignment(text[: boxed.MAX_ANSWER_CHARS]),
        (r"f(x) \in [1, 2]", "x_{12} = 3"),
    ),
    "words": (lambda text: words.jaccard(text, "a cat sat on the mat"), ("The cat sat.",)),
    "named action": (NamedActions({"left": 0, "right": 1}).read, ("I go.\naction: Left",)),
    "free text": (FreeText("say").read, ("hello",)),
    "JSON action": (JsonObject().read, ('{"move": [1, 2]}', "answer: {}")),
    "user's parser": (ParsedBy(lambda text: [int(text)][0], lambda rng: "1").read, ("12",)),
}
_CHECKERS = [
    checkers.Checker(kind=kind) for kind in ("tokens", "lines", "exact", "float", "unordered")
]


def _syntax(parse: Callable[[], Any]) -> Any:
    """The authors of data sets write these: a SyntaxError refuses the row."""
    try:
        return parse()
    except SyntaxError:
        return None


@pytest.mark.parametrize("name", PARSERS)
def test_parser_when_given_any_text_then_answers_soon(name: str) -> None:
    parse, samples = PARSERS[name]

    @fuzzed(25)
    @given(hostile_texts(samples))
    def holds(text: str) -> None:
        with bounded():
            parse(text)

    holds()


PARAMS: dict[str, dict[str, Any]] = {
    "gymnasium": {
        "env": "FrozenLake-v1",
        "env_kwargs": {"is_slippery": False},
        "actions": ["left", "down", "right", "up"],
        "return_bound": 1.0,
    },
    "pettingzoo": {"env": "classic/tictactoe-v3", "return_bound": 0.0, "max_steps": 12},
}
ELSEWHERE = {"openenv", "program", "textarena"}
"""Adapters that need a server or a package; tests/integration/adapters plays them."""
SANDBOXED = {"code", "code_best_of", "code_cooperative", "designed", "math", "repair", "verilog"}
"""Families that run programs. The kit writes anything to each (test_every_task_conforms)."""


@lru_cache
def _family(name: str) -> TaskFamily | None:
    try:
        return load_family(name, PARAMS.get(name, {}))
    except InvalidArgumentError as error:
        if not isinstance(error.__cause__, ImportError):
            raise
        return None


@pytest.mark.parametrize(
    "name", sorted({*plugins.registered(plugins.TASKS)} - ELSEWHERE - SANDBOXED)
)
def test_family_when_an_agent_writes_anything_then_it_is_judged(name: str) -> None:
    family = _family(name)
    if family is None:
        pytest.skip(f"{name} needs a package that is not installed")
    assert not isinstance(family, SandboxedTaskFamily), f"put {name} into SANDBOXED"
    environment, taskset = family.environment(), family.taskset()
    last = min(taskset.size("train") or 50, 50) - 1

    @fuzzed(8)
    @given(st.data())
    def holds(data: st.DataObject) -> None:
        task = taskset.task("train", data.draw(st.integers(0, last)))
        state, is_done, rng = environment.reset(task), False, Random(0)
        for _ in range(data.draw(st.integers(1, 6))):
            agent = next(a for a in family.agents if environment.observe(state, a))
            samples = tuple(family.random_action(state, agent, rng) for _ in range(3))
            text = data.draw(hostile_texts(samples))
            with bounded():
                done = environment.step(state, agent, text)
            assert math.isfinite(done.team_reward)
            assert all(math.isfinite(value) for value in done.local_rewards.values())
            state, is_done = done.state, done.done
            if is_done:
                break

    holds()
