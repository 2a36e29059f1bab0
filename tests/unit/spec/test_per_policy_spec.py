"""One trainer a policy: which jobs may have it, known before anything starts."""

from collections.abc import Mapping
from typing import Any

import pytest

from troupe import plugins
from troupe.algorithms.grpo import Grpo
from troupe.episodes.build import load_parts
from troupe.spec import JobSpec, SpecInvalidError, parse_spec

CRITIC = {"kind": "mappo", "critic": {"model": "m"}}
MADPO = {"kind": "madpo", "joint": {}, "preference": {}}
JOINT = {"workflow": {"kind": "simultaneous", "order": ["tool", "planner"], "max_turns": 1}}


class Rememberer(Grpo):
    """Has a memory of all policies."""

    def baselines(self) -> Mapping[str, Any]:
        return {}

    def restore_baselines(self, baselines: Mapping[str, Any]) -> None:
        pass


def document(**changes: Any) -> dict[str, Any]:
    body: dict[str, Any] = {
        "name": "two",
        "steps": 1,
        "task": {"name": "plan_path"},
        "workflow": {"order": ["tool", "planner"]},
        "agents": {"tool": {"policy": "small"}, "planner": {"policy": "large"}},
        "policies": {"small": {"model": "m"}, "large": {"model": "n"}},
        "trainer": {"per_policy": True},
    }
    return body | changes


def spec(**changes: Any) -> JobSpec:
    return parse_spec(document(**changes))


def test_trainers_when_nothing_is_said_then_one_of_all_policies() -> None:
    assert spec(trainer={}).trainers() == ("",)
    assert spec().trainers() == ("large", "small")


@pytest.mark.parametrize(
    ("changes", "pointer"),
    [
        (
            {
                "policies": {
                    "small": {"model": "m", "past": {"of": "large", "every": 2}},
                    "large": {"model": "m"},
                }
            },
            "/policies/small/past/every",
        ),
        ({"checkpoint": {"keep_best": 1}}, "/checkpoint/keep_best"),
    ],
)
def test_spec_when_a_trainer_would_need_another_then_refused_by_name(
    changes: dict[str, Any], pointer: str
) -> None:
    with pytest.raises(SpecInvalidError) as refused:
        spec(**changes)
    assert [issue.pointer for issue in refused.value.issues] == [pointer]
    assert "/trainer/per_policy" in refused.value.issues[0].message
    assert spec(**changes, trainer={"per_policy": False}).trainers() == ("",)


def test_spec_when_a_policy_stands_still_or_takes_turns_then_it_may_have_a_trainer() -> None:
    still = spec(policies={"small": {"model": "m", "frozen": True}, "large": {"model": "n"}})
    past = {"model": "m", "past": {"of": "large"}}
    rival = spec(policies={"small": past, "large": {"model": "n"}})
    turns = spec(algorithm={"alternate": {"order": ["small", "large"]}})
    assert {job.trainers() for job in (still, rival, turns)} == {("large", "small")}
    assert [job.trains("small") for job in (still, rival, turns)] == [False, False, True]
    assert [[job.learns(p, 0) for p in job.trainers()] for job in (still, rival, turns)] == [
        [True, False],
        [True, False],
        [False, True],
    ]


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"algorithm": CRITIC}, "one critic for the team"),
        ({**JOINT, "algorithm": MADPO}, "advantages of all policies together"),
        ({"algorithm": {"kind": f"{__name__}:Rememberer"}}, "remembers from step to step"),
    ],
)
def test_parts_when_the_algorithm_looks_across_policies_then_refused(
    changes: dict[str, Any], why: str
) -> None:
    with pytest.raises(SpecInvalidError, match=why) as refused:
        load_parts(spec(**changes))
    assert [issue.pointer for issue in refused.value.issues] == ["/trainer/per_policy"]
    alone = load_parts(spec(**changes, trainer={"per_policy": False}))
    assert alone.spec.trainers() == ("",)


def test_parts_when_there_is_one_policy_then_nothing_is_across_policies() -> None:
    shared = {"tool": {"policy": "small"}, "planner": {"policy": "small"}}
    parts = load_parts(spec(agents=shared, policies={"small": {"model": "m"}}, algorithm=CRITIC))
    assert parts.spec.trainers() == ("small",)
    assert type(parts.algorithm) is plugins.load(plugins.ALGORITHMS, "mappo")


@pytest.mark.parametrize(
    ("changes", "pointer"),
    [
        ({"algorithm": {"kind": "ippo", "critic": {"model": "m"}}}, "/algorithm/kind"),
        ({"batch": {"overlap": True}}, "/batch/overlap"),
        (
            {
                "policies": {
                    "small": {"model": "m", "past": {"of": "large", "every": 2}},
                    "large": {"model": "m"},
                }
            },
            "/policies/small/past/every",
        ),
    ],
)
def test_parts_when_what_needs_one_rank_has_several_gpus_then_refused_by_name(
    changes: dict[str, Any], pointer: str
) -> None:
    load_parts(spec(**changes, trainer={"gpus": 1}))
    with pytest.raises(SpecInvalidError, match="this trainer has 4 ranks") as refused:
        load_parts(spec(**changes, trainer={"gpus": 4}))
    assert [issue.pointer for issue in refused.value.issues] == [pointer]


def test_spec_when_it_names_no_gpus_then_its_document_is_what_older_services_read() -> None:
    assert spec(trainer={}).model_dump(mode="json")["trainer"] == {"per_policy": False}
