"""Why a sample failed, whom a reward belongs to, and how samples become a summary."""

import pytest

from troupe.evaluation.scores import Score, best_terms, failure_of, read_score
from troupe.evaluation.summary import compare, summarize
from troupe.rewards.mix import RewardMix
from troupe.spec.reward import RewardSpec

MIX = RewardMix(
    RewardSpec(), {"a": {"format": 0.5, "legal": 0.5, "outcome": 1.0}, "b": {"outcome": 2.0}}
)
FLAWLESS = {"a": {"format": 1.0, "legal": 1.0}}


def act(agent="a", *, info=None, truncated=False, reward=0.25, **terms):
    return {
        "agent": agent,
        "candidates": [
            {
                "is_chosen": True,
                "is_truncated": truncated,
                "reward": reward,
                "local_rewards": terms or {"format": 1.0, "legal": 1.0},
                "info": info or {},
            },
            {"is_chosen": False, "is_truncated": True, "reward": 9.0, "local_rewards": {}},
        ],
    }


def line(*groups, success=False, **more):
    return {
        "policy": "p",
        "task_index": 3,
        "sample": 1,
        "is_success": success,
        "num_turns": 2,
        "team_return": 0.5,
        "num_tokens": 7,
        "num_prompt_tokens": 11,
        "wall_s": 0.5,
        "groups": list(groups),
        **more,
    }


@pytest.mark.parametrize(
    ("acts", "kind"),
    [
        ([act()], "wrong"),
        ([act(), act(format=1.0, legal=0.0)], "illegal"),
        ([act(format=0.0, legal=0.0), act()], "format"),
        ([act(format=0.0, legal=0.0), act(truncated=True)], "truncated"),
        ([act(info={"failure": "illegal"})], "illegal"),
        ([act(info={"failure": "wrong"}, format=0.0, legal=0.0)], "wrong"),
    ],
)
def test_failure_when_actions_show_faults_then_the_first_kind_that_explains_it(acts, kind) -> None:
    assert failure_of(line(*acts), FLAWLESS) == kind


def test_failure_when_solved_then_there_is_none() -> None:
    assert failure_of(line(act(truncated=True), success=True), FLAWLESS) is None


def test_failure_when_the_family_pays_0_for_form_and_less_for_faults_then_0_is_no_fault() -> None:
    flawless = best_terms(line(act(format=0.0, legal=0.0)))
    assert failure_of(line(act(format=0.0, legal=0.0)), flawless) == "wrong"
    assert failure_of(line(act(format=0.0, legal=-1.0)), flawless) == "illegal"


def test_score_when_an_action_pays_another_agent_then_it_is_the_others_reward() -> None:
    score = read_score(
        line(
            act("a", reward=0.25),
            act("a", reward=1.25, **{"outcome": 1.0, "b/outcome": -1.0}),
            failure="wrong",
        ),
        MIX,
        FLAWLESS,
    )
    assert score.rewards == {"a": 1.5, "b": -2.0}
    assert score.terms["b"] == {"outcome": -1.0}
    assert score.num_actions == {"a": 2}
    assert (score.num_tokens, score.num_prompt_tokens, score.is_played) == (7, 11, True)


def test_score_when_a_machine_failed_then_is_unplayed() -> None:
    found = read_score(
        {"policy": "p", "task_index": 0, "sample": 0, "failure": "error", "errors": ["x", "y"]},
        MIX,
        FLAWLESS,
    )
    assert (found.is_played, found.error) == (False, "y")


def scores(table: dict[int, str]) -> list[Score]:
    """task -> one letter a sample: S solved, W wrong, E error."""
    return [
        Score(
            task_index=task,
            sample=sample,
            is_success=letter == "S",
            failure={"S": None, "W": "wrong", "E": "error"}[letter],
            error="UNAVAILABLE: gone" if letter == "E" else "",
            num_turns=2,
            num_tokens=10,
        )
        for task, letters in table.items()
        for sample, letter in enumerate(letters)
    ]


def test_summary_when_samples_errored_then_they_are_counted_and_never_scored() -> None:
    found = summarize("p", {"a": "scripted"}, scores({0: "SSSS", 1: "WEEE", 2: "SWWW"}))
    assert (found.num_tasks, found.num_samples, found.num_played, found.num_errors) == (3, 12, 9, 3)
    assert found.success is not None
    assert found.success.mean == pytest.approx(5 / 9)
    assert found.failures == {"wrong": 4, "error": 3}
    assert found.last_error == "UNAVAILABLE: gone"
    assert found.tokens_total == 90


def test_summary_when_tasks_lack_samples_then_pass_at_k_leaves_them_out() -> None:
    found = summarize("p", {}, scores({0: "SSSS", 1: "WEEE", 2: "SWWW"}))
    assert {k: e.num_tasks for k, e in found.pass_at_k.items()} == {1: 3, 2: 2, 4: 2}
    # 1: (1 + 0 + 1/4) / 3; 2: (1 + 1/2) / 2; 4: (1 + 1) / 2
    means = {k: e.mean for k, e in found.pass_at_k.items()}
    assert means == pytest.approx({1: 5 / 12, 2: 0.75, 4: 1.0})


def test_summary_when_nothing_was_played_then_has_no_figures() -> None:
    found = summarize("p", {}, scores({0: "E"}))
    assert found.success is None
    assert found.turns_mean is None
    assert found.pass_at_k == {}


def test_compare_when_tasks_differ_then_only_shared_ones_count() -> None:
    found = compare(
        ("x", scores({0: "SW", 1: "W", 5: "S"})), ("y", scores({0: "SS", 1: "S", 2: "S"}))
    )
    assert found is not None
    assert (found.policy, found.against, found.difference.num_tasks) == ("y", "x", 2)
    assert found.difference.mean == pytest.approx(0.75)
    assert compare(("x", scores({0: "E"})), ("y", scores({0: "S"}))) is None
