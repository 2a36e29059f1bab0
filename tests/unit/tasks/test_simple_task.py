"""SimpleTask, and families that have only what a family must have."""

import math
import re
import sys
from fractions import Fraction
from random import Random
from typing import Any, ClassVar

import numpy as np
import pytest
from pydantic import BaseModel

from troupe import Message, SimpleTask, Transition
from troupe.candidates import GenerateRequest
from troupe.cli.starter import starter_spec
from troupe.conformance import CheckLimits, check_family
from troupe.episodes.dryrun import dry_run
from troupe.episodes.local import LocalEnv, ScriptedRollout
from troupe.errors import InvalidArgumentError
from troupe.spec import parse_spec
from troupe.spec.job import SamplingSpec
from troupe.tasks.optional import (
    random_policy,
    request_task,
    required_policy,
    scripted_policy,
    vocabulary_of,
)
from troupe.tasks.registry import load_family
from troupe.tasks.tool_calls import ToolCall
from troupe.tasks.usual import USUAL_TURNS, usual_workflow


class CountDown(SimpleTask):
    """Two agents take 1 or 2 from a number; who must act reads it."""

    agents = ("first", "second")
    terms: ClassVar = {"legal": 0.5}

    def draw(self, rng: Random) -> dict[str, Any]:
        return {"left": rng.randint(1, 10**6), "turn": "first"}

    def observe(self, state: dict[str, Any], agent: str) -> str:
        return f"left {state['left']}" if agent == state["turn"] else ""

    def step(self, state: dict[str, Any], agent: str, action: str) -> Transition:
        if action not in ("1", "2") or agent != state["turn"]:
            return self.transition(state, info={"why": "illegal"})
        left = max(state["left"] - int(action), 0)
        turn = "second" if agent == "first" else "first"
        after = {"left": left, "turn": turn}
        return self.transition(after, left == 0, done=left == 0, success=left == 0, legal=1.0)


def at(left: int, turn: str = "first") -> bytes:
    return CountDown().transition({"left": left, "turn": turn}).state


def test_simple_task_when_declared_then_name_terms_and_params_follow() -> None:
    assert CountDown.name == "count_down"
    assert CountDown.local_terms == {"first": {"legal": 0.5}, "second": {"legal": 0.5}}
    assert load_family(f"{__name__}:CountDown", {"seed": 3}).agents == ("first", "second")


class Uneven(CountDown):
    """Its agents have different terms."""

    local_terms: ClassVar = {"first": {"legal": 0.5, "short": 0.1}, "second": {}}


def test_simple_task_when_a_subclass_declares_no_terms_then_it_has_those_of_its_base() -> None:
    class Variant(Uneven):
        return_bound = 2.0

    class Longer(Variant):
        agents = ("first", "second", "third")

    class Even(Uneven):
        terms: ClassVar = {"legal": 1.0}

    assert Variant.local_terms == Uneven.local_terms
    assert Longer.local_terms == {**Uneven.local_terms, "third": {"legal": 0.5}}
    assert Even.local_terms == {"first": {"legal": 1.0}, "second": {"legal": 1.0}}


def test_simple_task_when_stepped_then_state_reward_and_terms_are_the_methods() -> None:
    env = CountDown().environment()
    assert env.observe(at(3), "first") == (Message("user", "left 3"),)
    assert env.observe(at(3), "second") == ()
    done = env.step(at(3), "first", "2")
    assert (done.state, done.team_reward, done.local_rewards) == (
        at(1, "second"),
        0.0,
        {"legal": 1},
    )
    assert env.step(at(3), "first", "x").info == {"why": "illegal"}
    last = env.step(done.state, "second", "1")
    assert (last.team_reward, last.done, last.success) == (1.0, True, True)
    over = env.step(last.state, "first", "1")
    assert (over.state, over.team_reward, over.done, over.success) == (last.state, 0.0, True, True)
    for call in (lambda: env.step(at(3), "third", "1"), lambda: env.observe(at(3), "third")):
        with pytest.raises(InvalidArgumentError, match="first, second"):
            call()


def test_simple_task_when_tasks_are_drawn_then_seeded_and_no_split_shares_one() -> None:
    draws = {
        split: [CountDown().taskset().task(split, i).payload for i in range(40)]
        for split in ("train", "validation", "test")
    }
    assert draws["train"] == [CountDown().taskset().task("train", i).payload for i in range(40)]
    assert not set(draws["train"]) & {*draws["validation"], *draws["test"]}
    other = CountDown(CountDown.Params(seed=1)).taskset()
    assert other.task("train", 0).payload != draws["train"][0]


class Asked(CountDown):
    def request(self, text: str) -> dict[str, Any]:
        return {"left": len(text), "turn": "first"}


def test_simple_task_when_a_user_asks_then_its_state_begins_the_task() -> None:
    task = request_task(Asked(), "four")
    assert Asked().environment().reset(task) == at(4)
    with pytest.raises(InvalidArgumentError, match=r"'count_down' has no request\(text\)"):
        request_task(CountDown(), "four")


def test_kit_when_a_family_has_only_what_it_must_have_then_skips_by_name() -> None:
    report = check_family(CountDown(), limits=CheckLimits(seconds=0.3, num_tasks=2))
    assert report.is_ok, report.text()
    skipped = {c.name: c.evidence[0] for c in report.checks if c.outcome == "skipped"}
    for check, method in {
        "policies": "demonstrate(state, agent, rng)",
        "vocabulary": "vocabulary()",
        "scripted_beats_random": "random_action(state, agent, rng)",
        "lazy_unpaid": "demonstrate(state, agent, rng)",
    }.items():
        assert f"'count_down' has no {method}" in skipped[check] or method in skipped[check]
    assert {"step_pure", "replay", "forks", "any_text", "return_bound"} <= {
        c.name for c in report.checks if c.outcome == "passed"
    }


class Farmed(CountDown):
    def step(self, state: dict[str, Any], agent: str, action: str) -> Transition:
        return self.transition(state, 0.6, legal=1.0)


def test_kit_when_a_family_without_a_script_can_be_farmed_then_fails() -> None:
    report = check_family(Farmed(), limits=CheckLimits(seconds=0.3, num_tasks=2))
    assert "return_bound" in report.named("failed")


def test_policies_when_the_family_has_none_then_words_of_the_prompt() -> None:
    env = CountDown().environment()
    policy = random_policy(CountDown(), env.observe)
    texts = {policy(at(37), "first", Random(seed)) for seed in range(20)}
    assert {word for text in texts for word in text.split()} == {"left", "37"}
    assert policy(at(37), "first", Random(5)) == policy(at(37), "first", Random(5))
    assert policy(at(37), "second", Random(5)).strip("? ") == ""


def test_words_of_the_prompt_when_it_has_calls_and_results_then_are_theirs_too() -> None:
    called = Message("assistant", "", (ToolCall("look", '{"at": "there"}'),))
    policy = random_policy(CountDown(), lambda state, agent: (called, Message("tool", "seen")))
    words = {word for seed in range(20) for word in policy(b"", "first", Random(seed)).split()}
    assert {"<tool_call>", '"there"}}', "seen"} <= words


def test_policies_when_the_family_has_some_then_these_are_taken() -> None:
    family: Any = load_family("plan_path", {})
    observe = family.environment().observe
    assert scripted_policy(family, observe) == family.demonstrate
    assert random_policy(family, observe) == family.random_action
    assert vocabulary_of(family) == family.vocabulary()


def test_vocabulary_when_there_is_none_then_words_of_prompts_each_once() -> None:
    words = list(vocabulary_of(CountDown()))
    assert words[0] == "left"
    assert len(words) == len(set(words)) > 10


@pytest.mark.parametrize(
    ("kind", "method"), [("scripted", "demonstrate"), ("random", "random_action")]
)
def test_evaluation_when_the_player_is_not_there_then_says_what_to_write(kind, method) -> None:
    with pytest.raises(InvalidArgumentError, match=rf"no {method}\(.*policy '{kind}' needs"):
        ScriptedRollout(CountDown(), kind)


def test_warm_start_when_the_family_demonstrates_nothing_then_says_how_to_go_without() -> None:
    with pytest.raises(InvalidArgumentError, match=r"a warm start needs; write it, or make"):
        required_policy(
            CountDown(), "demonstrate", needed_by="a warm start", instead="make the model without"
        )


async def test_scripted_play_when_there_is_no_script_then_plays_words_of_the_prompt() -> None:
    env = LocalEnv(CountDown())
    start = await env.reset(split="train", index=0, observe=["first"], timeout_s=1)
    seen = start.observations["first"]
    rollout = ScriptedRollout(CountDown(), observe=env.observe)
    request = GenerateRequest("p", 0, seen, 3, SamplingSpec(), seed=1)
    drawn = await rollout.generate(request, timeout_s=1)
    shown = set(seen[0].content.split())
    assert all(set(c.text.split()) <= shown for c in drawn.candidates)


class Habits(CountDown):
    usual_workflow: ClassVar = {"order": ["second"], "max_turns": 9}


def test_usual_workflow_when_asked_anywhere_then_one_default_and_one_meaning() -> None:
    assert usual_workflow(CountDown()).max_turns == USUAL_TURNS == 4
    assert usual_workflow(CountDown()).order == ["first", "second"]
    usual = usual_workflow(Habits())
    assert (usual.order, usual.max_turns) == (["second"], 9)
    assert usual_workflow(Habits(), max_turns=2, order=["first"]).model_dump() == {
        "kind": "turn_based",
        "order": ["first"],
        "max_turns": 2,
    }


class Unfinished(SimpleTask):
    Params: ClassVar[type[BaseModel]] = SimpleTask.Params


@pytest.mark.parametrize("call", ["draw", "observe", "step"])
def test_simple_task_when_a_method_is_missing_then_names_it(call: str) -> None:
    arguments = {"draw": (Random(0),), "observe": ({}, "agent"), "step": ({}, "agent", "x")}
    with pytest.raises(NotImplementedError, match=f"Unfinished has no {call}"):
        getattr(Unfinished(), call)(*arguments[call])
    assert math.isfinite(Unfinished.return_bound)


class Wrong(CountDown):
    """Returns what no method of a task may."""

    wrong: Any = None

    def observe(self, state: dict[str, Any], agent: str) -> Any:
        return self.wrong

    def step(self, state: dict[str, Any], agent: str, action: str) -> Any:
        return self.wrong


@pytest.mark.parametrize(
    ("wrong", "kind"),
    [(None, "None"), ({"role": "user"}, "a dict"), ([{}], "a list")],
)
def test_simple_task_when_a_method_returns_something_else_then_says_what_to_return(
    wrong: Any, kind: str
) -> None:
    task = Wrong()
    task.wrong = wrong
    env = task.environment()
    with pytest.raises(TypeError, match=f"Wrong.observe returned {kind}; give a text or"):
        env.observe(at(3), "first")
    with pytest.raises(TypeError, match=rf"Wrong.step returned {kind}; return self.transition\("):
        env.step(at(3), "first", "1")


def test_simple_task_when_a_state_is_no_json_then_it_is_shown() -> None:
    with pytest.raises(TypeError, match=r"must be JSON values \(.*set.*\): {'x': \{1\}}"):
        CountDown().transition({"x": {1}})


def test_simple_task_when_agents_are_a_text_then_the_tuple_is_named() -> None:
    with pytest.raises(TypeError, match=r'Alone\.agents is a text.*agents = \("solver",\)$'):
        type("Alone", (SimpleTask,), {"agents": "solver"})


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"reward": "1"}, "reward='1'; give a number"),
        ({"reward": None}, "reward=None; give a number"),
        ({"legal": "1"}, "legal='1'; give a number"),
        ({"done": "no"}, "done='no'; give True or False"),
        ({"success": None}, "success=None; give True or False"),
    ],
)
def test_transition_when_a_value_is_of_another_type_then_named(
    given: dict[str, Any], named: str
) -> None:
    with pytest.raises(TypeError, match=re.escape(named)):
        CountDown().transition({}, **given)


@pytest.mark.parametrize("paid", [True, 1, np.float32(1), np.int64(1), np.bool_(True), Fraction(1)])
def test_transition_when_the_reward_is_any_number_then_paid(paid: Any) -> None:
    made = CountDown().transition({}, paid, done=1, success=True, legal=paid)
    assert (made.team_reward, made.local_rewards["legal"]) == (1.0, paid)


class Unbounded(CountDown):
    return_bound: Any = "3"


def test_family_when_its_bound_is_no_number_then_refused_as_it_is_loaded() -> None:
    with pytest.raises(InvalidArgumentError, match=r"has return_bound = '3', which is no number"):
        load_family(f"{__name__}:Unbounded", {})


class Raises(CountDown):
    def step(self, state: dict[str, Any], agent: str, action: str) -> Transition:
        return {}["x"]


async def test_dry_run_when_the_task_raises_then_one_sentence_names_its_line() -> None:
    document = starter_spec(f"{__name__}:Raises", name="dryrun", is_small=True)
    with pytest.raises(InvalidArgumentError) as caught:
        await dry_run(parse_spec(document))
    assert f"task '{__name__}:Raises' can't be played: KeyError: 'x' (at " in caught.value.message
    line = Raises.step.__code__.co_firstlineno + 1
    place = f"test_simple_task.py, line {line}, in step: "
    assert caught.value.message.endswith(place + '`return {}["x"]`). Correct its code')


class Leaves(CountDown):
    where = ""

    def draw(self, rng: Random) -> dict[str, Any]:
        return sys.exit("bad data") if self.where == "draw" else super().draw(rng)

    def observe(self, state: dict[str, Any], agent: str) -> str:
        return sys.exit("bad data") if self.where == "observe" else super().observe(state, agent)

    def step(self, state: dict[str, Any], agent: str, action: str) -> Transition:
        sys.exit("bad data")

    def demonstrate(self, state: bytes, agent: str, rng: Random) -> str:
        return sys.exit("bad data") if self.where == "demonstrate" else "1"


@pytest.mark.parametrize("where", ["draw", "observe", "step", "demonstrate"])
async def test_dry_run_when_the_task_exits_then_its_line_is_named(
    where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Leaves, "where", where)
    document = starter_spec(f"{__name__}:Leaves", name="dryrun", is_small=True)
    with pytest.raises(InvalidArgumentError, match=rf"SystemExit: bad data \(at .*, in {where}: "):
        await dry_run(parse_spec(document))


class Undrawn(SimpleTask):
    """Has no tasks."""


async def test_dry_run_when_no_line_of_the_task_raised_then_no_line_of_troupe_is_named() -> None:
    document = starter_spec(f"{__name__}:Undrawn", name="dryrun", is_small=True)
    with pytest.raises(InvalidArgumentError, match=r"has no draw\(rng\): the tasks\. Correct"):
        await dry_run(parse_spec(document))
