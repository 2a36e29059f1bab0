"""Who learns when, and the parts of the algorithm that only some read: accepted or named."""

from typing import Any

import pytest

from troupe.episodes.build import load_parts
from troupe.spec import SpecInvalidError, parse_spec
from troupe.spec.checks import submission_issues


def body(**changes: Any) -> dict[str, Any]:
    return {
        "name": "t",
        "steps": 8,
        "task": {"name": "plan_path"},
        "workflow": {"order": ["tool", "planner"], "max_turns": 2},
        "agents": {"tool": {"policy": "one"}, "planner": {"policy": "two"}},
        "policies": {"one": {"model": "m"}, "two": {"model": "m"}},
        **changes,
    }


def two(**second: Any) -> dict[str, Any]:
    return {"one": {"model": "m"}, "two": {"model": "m", **second}}


def test_learns_when_alternating_then_each_has_its_turn_and_the_others_stand_still():
    spec = parse_spec(body(algorithm={"alternate": {"order": ["two", "one"], "every": 3}}))
    turns = ["".join(p for p in ("one", "two") if spec.learns(p, step)) for step in range(8)]
    assert turns == ["two", "two", "two", "one", "one", "one", "two", "two"]


def test_learns_when_a_policy_is_not_named_or_frozen_then_always_or_never():
    policies = {**two(), "three": {"model": "m"}, "ice": {"model": "m", "frozen": True}}
    agents = {
        "tool": {"policy": "one"},
        "planner": {"policy": "two"},
        "c": {"policy": "three"},
        "d": {"policy": "ice"},
    }
    spec = parse_spec(
        body(
            policies=policies,
            agents=agents,
            workflow={"order": list(agents)},
            algorithm={"alternate": {"order": ["one", "two"]}},
        )
    )
    assert [spec.learns("three", step) for step in range(3)] == [True] * 3
    assert [spec.learns("ice", step) for step in range(3)] == [False] * 3
    assert not spec.trains("ice")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"policies": {n: {"model": "m", "frozen": True} for n in ("one", "two")}}, "thaw one"),
        ({"policies": two(frozen=True, past={"of": "one"})}, "remove frozen or past"),
        ({"policies": two(past={"of": "two"})}, "no trained policy"),
        ({"algorithm": {"alternate": {"order": ["one", "tow"]}}}, "did you mean 'two'"),
        ({"algorithm": {"alternate": {"order": ["one", "one"]}}}, "named once"),
        ({"algorithm": {"alternate": {"order": ["one"]}}}, "alternate/order"),
        (
            {"policies": two(frozen=True), "algorithm": {"alternate": {"order": ["one", "two"]}}},
            "/algorithm/alternate/order/1",
        ),
        ({"algorithm": {"redraws": 65}}, "/algorithm/redraws"),
        ({"algorithm": {"joint": {"mode": "diagonal"}}}, "/algorithm/joint/mode"),
    ],
)
def test_spec_when_nobody_could_learn_as_asked_then_says_where(changes, message):
    with pytest.raises(SpecInvalidError, match=message):
        parse_spec(body(**changes))


def test_best_step_when_policies_take_turns_then_the_field_is_named():
    turns = {"alternate": {"order": ["one", "two"]}}
    issues = submission_issues(parse_spec(body(algorithm=turns, checkpoint={"keep_best": 1})))
    assert [issue.pointer for issue in issues] == ["/checkpoint/keep_best"]
    assert submission_issues(parse_spec(body(algorithm=turns))) == []
    assert submission_issues(parse_spec(body(checkpoint={"keep_best": 1}))) == []


@pytest.mark.parametrize(
    ("importance", "pointers"),
    [
        ({"cap": 0.5, "mask": {"low": 0.9, "high": 1.1}}, ["/algorithm/loss/importance/cap"]),
        ({"cap": 0.9, "mask": {"low": 0.9, "high": 1.1}}, ["/algorithm/loss/importance/cap"]),
        ({"cap": 0.95, "mask": {"low": 0.9, "high": 1.1}}, []),
        ({"cap": 0.5, "mask": {"level": "geometric"}}, []),  # tokens of its band may weigh less
        ({"cap": 0.5}, []),
    ],
)
def test_importance_when_the_cap_would_make_all_kept_weights_equal_then_is_refused(
    importance: dict[str, Any], pointers: list[str]
):
    spec = parse_spec(body(algorithm={"loss": {"importance": importance}}))
    assert [issue.pointer for issue in submission_issues(spec)] == pointers


AT_ONCE = {"kind": "simultaneous", "order": ["tool", "planner"], "max_turns": 2}
DEEP = {**AT_ONCE, "max_turns": 9}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"algorithm": {"kind": "magrpo", "joint": {}}}, "/workflow/kind: .*Use kind simultaneous"),
        ({"algorithm": {"kind": "magrpo"}, "workflow": AT_ONCE}, "/algorithm/joint"),
        ({"algorithm": {"kind": "magrpo", "joint": {}}, "workflow": DEEP}, "/workflow/max_turns"),
        ({"algorithm": {"kind": "ippo"}}, "/algorithm/critic: 'ippo' needs a critic"),
        ({"algorithm": {"kind": "mappo", "critic": {"kind": "head"}}}, "/algorithm/critic/kind"),
        (
            {
                "algorithm": {"kind": "mappo", "critic": {}},
                "policies": {"one": {"model": "m"}, "two": {"model": "n"}},
            },
            "/algorithm/critic/model",
        ),
    ],
)
def test_job_when_the_algorithm_lacks_what_it_needs_then_is_refused_at_the_door(changes, message):
    with pytest.raises(SpecInvalidError, match=message):
        load_parts(parse_spec(body(**changes)))


def test_job_when_no_advantage_would_count_then_is_refused():
    weights = {"positive_advantage_weight": 0.0, "negative_advantage_weight": 0}
    with pytest.raises(SpecInvalidError, match="no advantage counts; raise one of them"):
        parse_spec(body(algorithm={"loss": weights}))
