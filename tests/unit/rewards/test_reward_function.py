"""A job's own reward function: loaded, called, refused, mixed."""

import asyncio
import json
import math
import sys
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict

from troupe import plugins
from troupe.episodes.build import load_parts
from troupe.episodes.dryrun import dry_run
from troupe.errors import InvalidArgumentError, RewardFailedError, UnavailableError
from troupe.rewards.family import rewarded, with_reward
from troupe.rewards.mix import RewardMix
from troupe.rewards.reward import (
    JudgedTransition,
    NamedReward,
    load_reward,
    reward_json,
    rewards_of_json,
)
from troupe.spec import JobSpec, SpecInvalidError, load_spec, parse_spec
from troupe.spec.reward import RewardSpec
from troupe.tasks.family import Task
from troupe.tasks.optional import request_task
from troupe.tasks.registry import load_family
from troupe_router.run.episode_tree import reward_parts

EXAMPLE = Path(__file__).parents[3] / "examples" / "plan_path_6x6.yaml"
TASK = Task("t/train/3", "train", 3, b"payload")
DONE = JudgedTransition(b"s", 0.5, {}, False, False, {}, b"before", "tool", "go left")


def words(transition: JudgedTransition, task: Task, *, scale: float = 1.0) -> float:
    return scale * len(transition.action.split())


doubled = partial(words, scale=2.0)


class Weighed:
    """A function with a setting of its own."""

    def __call__(self, transition: JudgedTransition, task: Task, *, scale: float = 1.0) -> float:
        return words(transition, task, scale=scale)


weighed = Weighed()


@pytest.mark.parametrize(
    ("name", "params", "expected"),
    [("doubled", {}, 4.0), ("doubled", {"scale": 3.0}, 6.0), ("weighed", {"scale": 5}, 10.0)],
)
def test_reward_when_a_partial_or_a_callable_object_then_its_keywords_are_params(
    name: str, params: dict[str, Any], expected: float
) -> None:
    assert load_reward(f"{__name__}:{name}", params).function(DONE, TASK) == expected


def broken(transition: JudgedTransition, task: Task) -> float:
    raise KeyError("no such word")


def leaves(transition: JudgedTransition, task: Task) -> float:
    sys.exit("bad data")


def gives(value: Any) -> Any:
    return lambda transition, task: value


nan, text, nothing, infinite = gives(math.nan), gives("1"), gives(None), gives(math.inf)
truth, one = gives(True), gives(1)


def asks_a_judge(transition: JudgedTransition, task: Task) -> float:
    raise UnavailableError("the judge is down")


class Counts:
    """A reward with parameters of a model."""

    class Params(BaseModel):
        model_config = ConfigDict(extra="forbid")
        letter: str

    def __init__(self, params: Params) -> None:
        self.letter = params.letter

    def __call__(self, transition: JudgedTransition, task: Task) -> float:
        return transition.action.count(self.letter) + task.index


def named(function: str) -> str:
    return f"{__name__}:{function}"


def spec_with(reward: Any) -> JobSpec:
    document = load_spec(EXAMPLE).model_dump(mode="json")
    return parse_spec({**document, "reward": reward})


@pytest.mark.parametrize(
    ("function", "params", "value"),
    [
        ("words", {}, 2.0),
        ("words", {"scale": 0.5}, 1.0),
        ("Counts", {"letter": "g"}, 4.0),
        ("truth", {}, 1.0),
        ("one", {}, 1.0),
    ],
)
def test_reward_when_it_gives_a_number_then_that_is_its_term(function, params, value) -> None:
    found = load_reward(named(function), params)(DONE, TASK)
    assert (found, type(found)) == (value, float)


@pytest.mark.parametrize(
    ("function", "words"),
    [
        ("broken", "raised KeyError: 'no such word' (at "),
        ("broken", f", line {broken.__code__.co_firstlineno + 1}, in broken: `raise KeyError("),
        ("leaves", "raised SystemExit: bad data (at "),
        ("leaves", f", line {leaves.__code__.co_firstlineno + 1}, in leaves: `sys.exit("),
        ("nan", "gave nan"),
        ("infinite", "gave inf"),
        ("text", "gave '1'"),
        ("nothing", "gave None"),
    ],
)
def test_reward_when_it_gives_no_number_then_an_error_names_it_and_the_task(
    function: str, words: str
) -> None:
    with pytest.raises(RewardFailedError) as caught:
        load_reward(named(function), {})(DONE, TASK)
    for part in (named(function), words, "t/train/3", "'tool'", "'go left'"):
        assert part in caught.value.message
    assert not caught.value.retryable


def test_reward_when_what_it_asks_is_down_then_the_step_is_tried_again() -> None:
    with pytest.raises(UnavailableError):
        load_reward(named("asks_a_judge"), {})(DONE, TASK)


@pytest.mark.parametrize(
    ("function", "params", "pointer", "words"),
    [
        ("words", {"scal": 1.0}, "/reward/params/scal", "did you mean 'scale'"),
        ("words", {"scale": "much"}, "/reward/params/scale", "valid number"),
        ("Counts", {}, "/reward/params/letter", "required"),
        ("one", {"x": 1}, "/reward/params", "has no parameters"),
        ("absent", {}, "/reward/kind", "absent"),
        ("TASK", {}, "/reward/kind", "is no reward"),
    ],
)
def test_spec_when_its_reward_cannot_be_made_then_a_pointer_says_where(
    function: str, params: dict[str, Any], pointer: str, words: str
) -> None:
    with pytest.raises(InvalidArgumentError, match=words) as caught:
        load_parts(spec_with({"kind": named(function), "params": params}))
    assert caught.value.pointer == pointer


def test_spec_when_its_reward_is_a_text_then_is_the_function_alone() -> None:
    assert spec_with(named("words")) == spec_with({"kind": named("words")})
    assert spec_with({"alpha": 0.5}).reward == RewardSpec(alpha=0.5)


@pytest.mark.parametrize(
    "given", [{"params": {"x": 1}}, {"mode": "replace"}, {"weight": 2.0}, {"name": "style"}]
)
def test_spec_when_there_is_no_function_then_what_is_about_it_is_refused(given) -> None:
    with pytest.raises(SpecInvalidError, match="no reward function") as caught:
        spec_with(given)
    assert caught.value.pointer == f"/reward/{next(iter(given))}"


def test_spec_when_the_term_is_the_tasks_then_asks_for_another_name() -> None:
    with pytest.raises(SpecInvalidError, match="another name") as caught:
        load_parts(spec_with({"kind": named("words"), "name": "format"}))
    assert caught.value.pointer == "/reward/name"


def test_modules_when_the_router_allows_none_then_a_reward_of_a_spec_is_not_imported() -> None:
    with plugins.only_modules(()), pytest.raises(InvalidArgumentError, match="may not load"):
        load_parts(spec_with(named("words")))
    with plugins.only_modules([__name__]):
        load_parts(spec_with(named("words")))


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        # 2.0 * team 0.5 + 0.1 * format + 3.0 * words
        ("add", 2.0 * 0.5 + 0.1 * 1.0 + 3.0 * 2.0),
        ("replace", 3.0 * 2.0),
    ],
)
def test_mix_when_a_function_adds_or_replaces_then_hand_worked_sum(mode, expected) -> None:
    family = load_family("plan_path", {"size": 6})
    spec = RewardSpec(alpha=2.0, kind=named("words"), weight=3.0, mode=mode)
    mix = RewardMix(spec, with_reward(family, spec).local_terms)
    assert mix("tool", 0.5, {"format": 1.0, "words": 2.0}) == pytest.approx(expected)


def test_mix_when_weights_name_an_agents_term_then_they_count_for_that_agent() -> None:
    weights = {"tool": {"words": 0.0, "format": 0.4}}
    spec = RewardSpec(kind=named("words"), weight=3.0, mode="replace", weights=weights)
    family = with_reward(load_family("plan_path", {"size": 6}), spec)
    mix = RewardMix(spec, family.local_terms)
    assert mix("tool", 1.0, {"format": 1.0, "words": 2.0}) == pytest.approx(0.4)
    assert mix("planner", 1.0, {"format": 1.0, "words": 2.0}) == pytest.approx(6.0)


def test_environment_when_it_has_a_reward_then_judges_as_before_and_adds_the_term() -> None:
    family = load_family("plan_path", {"size": 6})
    more: Any = rewarded(family, [load_reward(named("words"), {})])
    task = family.taskset().task("train", 7)
    plain, env = family.environment(), more.environment()
    state, bare = env.reset(task), plain.reset(task)
    for number in range(6):
        agent = family.agents[number % 2]
        assert env.observe(state, agent) == plain.observe(bare, agent)
        text = more.demonstrate(state, agent, Random(number))
        assert text == family.demonstrate(bare, agent, Random(number))
        done, before = env.step(state, agent, text), plain.step(bare, agent, text)
        assert env.step(state, agent, text) == done
        assert done.local_rewards == {**before.local_rewards, "words": len(text.split())}
        assert (done.team_reward, done.done) == (before.team_reward, before.done)
        state, bare = done.state, before.state
        assert state == b"train/7\n" + bare


def test_environment_when_the_state_has_no_task_then_says_why() -> None:
    env = rewarded(load_family("plan_path", {}), [load_reward(named("words"), {})]).environment()
    bare = load_family("plan_path", {})
    state = bare.environment().reset(bare.taskset().task("train", 0))
    with pytest.raises(InvalidArgumentError, match="without the job's reward function"):
        env.step(state, "tool", "x")


@pytest.mark.parametrize("splits", [("train",), ("train", "test")])
def test_reward_when_a_user_asks_the_team_then_its_task_is_that_of_the_request(
    tmp_path: Path, splits: tuple[str, ...]
) -> None:
    for split in splits:
        row = {"id": f"{split}/1", "text": f"A post of the {split} rows.", "source": "x"}
        (tmp_path / f"{split}.jsonl").write_text(json.dumps(row) + "\n")
    given: list[Task] = []

    def seen(transition: JudgedTransition, task: Task) -> float:
        given.append(task)
        return 0.0

    family: Any = load_family("tldr", {"data": str(tmp_path)})
    env = rewarded(family, [NamedReward("seen", "seen", seen)]).environment()
    asked = request_task(family, "A text of somebody.")
    for task in (asked, family.taskset().task("train", 0)):
        done = env.step(env.reset(task), family.agents[0], "A summary.")
        env.step(done.state, family.agents[0], "Another one.")
    assert given == [asked, asked, *[family.taskset().task("train", 0)] * 2]


@pytest.mark.parametrize("state", [b"{", b"{}", b'{"payload": 1}', b'{"payload": ""}', b"[" * 9])
def test_step_when_the_state_names_no_task_then_is_refused(state: bytes) -> None:
    env = rewarded(load_family("plan_path", {}), [load_reward(named("words"), {})]).environment()
    with pytest.raises(InvalidArgumentError, match="without the job's reward function"):
        env.step(state + b"\n{}", "tool", "x")


def test_json_when_read_again_then_is_the_same_function_and_term() -> None:
    spec = RewardSpec(kind=named("Counts"), params={"letter": "o"}, weight=9.0, name="letters")
    (again,) = rewards_of_json(reward_json(spec))
    assert (again.term, again(DONE, TASK)) == ("letters", 4.0)
    assert "9.0" not in reward_json(spec)
    assert rewards_of_json(reward_json(RewardSpec())) == ()


@pytest.mark.parametrize("wrong", ["{", "[]", '{"name": "x"}', '{"kind": 3}'])
def test_json_when_it_is_garbage_then_invalid_argument(wrong: str) -> None:
    with pytest.raises(InvalidArgumentError):
        rewards_of_json(wrong)


def test_dryrun_when_the_job_names_a_reward_then_candidates_are_paid_by_it() -> None:
    spec = spec_with({"kind": named("words"), "mode": "replace", "weight": 0.5})
    episodes = asyncio.run(dry_run(spec, num_tasks=2))
    candidates = [c for e in episodes for g in e.played.groups for c in g.candidates]
    assert candidates
    for candidate in candidates:
        assert candidate.local_rewards["words"] == len(candidate.text.split())
        assert candidate.reward == pytest.approx(0.5 * candidate.local_rewards["words"])
        assert "format" in candidate.local_rewards


def test_example_when_used_by_a_job_then_plays() -> None:
    spec = spec_with({"kind": "examples.my_rewards:brevity", "params": {"max_words": 4}})
    [episode] = asyncio.run(dry_run(spec, num_tasks=1))
    assert "brevity" in episode.played.groups[0].candidates[0].local_rewards
    load_reward("examples.my_rewards:Keyword", {"word": "left"})


@pytest.mark.parametrize(
    ("mode", "weights"),
    [
        ("add", {"team": 1.0, "format": 0.1, "words": 0.5}),
        ("replace", {"team": 0.0, "format": 0.0, "words": 0.5}),
    ],
)
def test_viewer_when_the_job_has_a_reward_then_shows_its_term_and_weight(
    mode: str, weights: dict[str, float]
) -> None:
    parts = load_parts(spec_with({"kind": named("words"), "mode": mode, "weight": 0.5}))
    local = {"format": 1.0, "words": 4.0}
    candidate = {
        "team_reward": 0.25,
        "local_rewards": local,
        "reward": parts.mix("tool", 0.25, local),
    }
    shown = reward_parts(candidate, "tool", parts)
    assert {part.term: part.weight for part in shown} == weights
    assert sum(part.contribution for part in shown) == pytest.approx(candidate["reward"])


def strict_is_right(transition: JudgedTransition, task: Task) -> float:
    return float(transition.success)


def test_strict_judge_when_named_then_is_recorded_with_weight_0_and_judges_a_share() -> None:
    strict = {"kind": named("strict_is_right"), "fraction": 0.5}
    spec = RewardSpec.model_validate({"strict": strict})
    family: Any = with_reward(load_family("plan_path", {}), spec)
    assert all(terms["strict"] == 0.0 for terms in family.local_terms.values())
    (judge,) = rewards_of_json(reward_json(spec))
    assert (judge.term, judge.fraction) == ("strict", 0.5)
    env, rng = family.environment(), Random(0)
    state = env.reset(family.taskset().task("train", 0))
    texts = [family.random_action(state, "tool", rng) + str(n) for n in range(200)]
    judged = ["strict" in env.step(state, "tool", text).local_rewards for text in texts]
    assert judged == ["strict" in env.step(state, "tool", text).local_rewards for text in texts]
    assert 60 < sum(judged) < 140


def test_strict_judge_when_beside_a_reward_function_then_both_terms_are_there() -> None:
    spec = RewardSpec.model_validate({"kind": named("words"), "strict": named("strict_is_right")})
    family: Any = with_reward(load_family("plan_path", {}), spec)
    env = family.environment()
    state = env.reset(family.taskset().task("train", 0))
    done = env.step(state, "tool", "one two")
    assert (done.local_rewards["words"], done.local_rewards["strict"]) == (2.0, 0.0)
    assert family.local_terms["tool"]["words"] == 1.0
