"""What a trainer advises after a step that taught little: by what the answers show."""

import json
import random

import pytest
from trainer_data import make_group

from troupe.api.records.v1 import records_pb2 as pb
from troupe.runtime.step_report.trainer import TrainerPart
from troupe_trainer.learn.advice import flat_advice, sparse_advice, untaught_advice
from troupe_trainer.samples import credit

CUT = pb.FINISH_REASON_LENGTH


def group(rewards, *, texts=None, failures=None, num_cut=0, solved=False, local=None, task=0):
    made = make_group(random.Random(task), task=task, size=len(rewards), rewards=rewards)
    for index, candidate in enumerate(made.candidates):
        candidate.text = texts[index] if texts else f"answer {index}"
        candidate.is_success = solved
        candidate.local_rewards.update(local or {})
        if failures:
            candidate.info_json = json.dumps({"failure": failures[index]})
        if index < num_cut:
            candidate.finish_reason = CUT
    return made


def report(groups, **more):
    cut = [c.finish_reason == CUT for g in groups for c in g.candidates]
    share = sum(cut) / len(cut) if cut else None
    numbers = {"is_flat": True, "groups_dropped": {}, "truncated_fraction": share, **more}
    return TrainerPart(step=3, policy_version=4, **numbers)


def advice(*groups, **more):
    return flat_advice(groups, report(groups, **more)).words


def test_advice_when_all_lack_the_form_then_says_so_and_shows_one():
    text = advice(group([0.0] * 4, failures=["format", "format", "format", "wrong"]))
    assert "Every answer was paid 0: 3 of 4 lacked the form" in text
    assert "tool wrote, for example: 'answer 0'." in text
    assert "example of the form in the prompt" in text
    assert "max_new_tokens" not in text


def test_advice_when_all_are_wrong_then_the_tasks_are_too_hard():
    text = advice(group([0.0] * 4, failures=["wrong"] * 4))
    assert "4 of 4 had the form and were wrong" in text
    assert "Make the tasks easier" in text


def test_advice_when_most_are_cut_off_then_the_finished_ones_say_what_else_failed():
    text = advice(group([0.0] * 4, failures=["format"] * 4, num_cut=3))
    assert "3 of 4 ran into the token limit, 1 of 4 lacked the form" in text
    assert "wrote, for example: 'answer 3'" in text
    assert "Raise sampling.max_new_tokens" in text
    assert "example of the form" in text


def test_advice_when_all_are_cut_off_then_the_limit_alone_is_named():
    text = advice(group([0.0] * 4, num_cut=4))
    assert "Raise sampling.max_new_tokens (and max_tokens of a program's own calls" in text
    assert "easier" not in text


@pytest.mark.parametrize(("term", "words"), [("format", "the form"), ("legal", "not allowed")])
def test_advice_when_a_term_fines_the_answers_then_it_is_the_cause(term, words):
    assert words in advice(group([0.0] * 2, local={term: -1.0, "team": 1.0}))


def test_advice_when_the_task_gives_no_reason_then_says_that():
    text = advice(group([0.0] * 2))
    assert "for a reason that the task does not say" in text


def test_advice_when_an_answer_holds_control_characters_then_they_are_escaped_and_it_is_cut():
    text = advice(group([0.0] * 2, texts=["\x1b[2J\u202e" + "x" * 500, "b"]))
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert "x" * 201 not in text


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (group([1.0] * 3, num_cut=2), "judge unfinished answers. Raise"),
        (group([1.0] * 3, solved=True), "solved its task: make them harder"),
        (group([0.5] * 3), "does not tell good ones from bad ones"),
    ],
    ids=["cut", "solved", "constant"],
)
def test_advice_when_all_were_paid_alike_then_it_depends_on_what_else_is_seen(made, words):
    assert words in advice(made)


def test_advice_when_tasks_differ_then_equal_texts_ask_for_a_higher_temperature():
    same = [group([r] * 2, texts=["yes", "yes"], task=n) for n, r in enumerate((0.0, 1.0))]
    assert "raise the temperature" in advice(*same)
    other = [group([r] * 2, task=n) for n, r in enumerate((0.0, 1.0))]
    assert "or set redraws" in advice(*other)


def test_advice_when_no_group_is_left_then_names_why_they_were_dropped():
    assert "non_finite_reward 3" in advice(groups_dropped={"non_finite_reward": 3})


def test_advice_when_a_filter_left_all_out_then_names_it():
    made = group([1.0] * 3, num_cut=3)
    assert "filters.truncated" in advice(made, candidates_filtered=3)


@pytest.mark.parametrize(
    ("paid", "redraws", "words", "absent"),
    [
        (1.0, 0, ["7 of 8 groups", "In 7 groups every", "algorithm.redraws", "harder"], "easier"),
        (0.0, 2, ["In 0 groups every", "easier"], "redraws"),
    ],
)
def test_advice_when_most_groups_are_flat_then_says_what_it_costs(paid, redraws, words, absent):
    groups = [group([paid] * 2, task=n) for n in range(7)] + [group([0.0, 1.0], task=7)]
    text = sparse_advice(
        groups, report(groups, is_flat=False, groups_zero_variance=7), redraws=redraws
    )
    assert all(word in text for word in words)
    assert absent not in text
    few = report(groups, is_flat=False, groups_zero_variance=5)
    assert not sparse_advice(groups, few, redraws=redraws)


def test_advice_when_whole_episodes_are_solved_then_asks_for_harder_tasks():
    groups = [group([0.0, 1.0] * 2, task=n) for n in range(8)]
    for made in groups:  # two episodes of two acts, of which the last one is paid
        made.key = pb.GROUP_KEY_TASK
        for number, candidate in enumerate(made.candidates):
            candidate.trajectory = number // 2
    text = sparse_advice(groups, report(groups, is_flat=False, groups_zero_variance=8), redraws=0)
    assert "In 8 groups every" in text
    assert "harder" in text


def credited(agent, rewards, *, task, **more):
    made = group(rewards, task=task, **more)
    made.agent = agent
    mean = sum(rewards) / len(rewards)
    return credit(made, [reward - mean for reward in rewards], 1.0)


def test_advice_when_an_agent_is_paid_the_same_above_zero_then_tasks_are_not_to_blame():
    critic = [credited("critic", [1.0] * 4, task=n) for n in range(3)]
    assert "easier" not in untaught_advice(critic)["critic"]


def test_advice_when_one_agent_is_paid_the_same_for_everything_then_names_it_alone():
    writer = [credited("writer", [0.0, 1.0, 0.0, 1.0], task=n) for n in range(3)]
    critic = [credited("critic", [0.0] * 4, task=n) for n in range(3)]
    advice = untaught_advice([*writer, *critic])
    assert list(advice) == ["critic"]
    assert "agent 'critic' was paid 0 (3 groups)" in advice["critic"]
    assert "`follow`" in advice["critic"]
    assert "needs easier tasks" in advice["critic"]


@pytest.mark.parametrize(
    "groups",
    [
        [credited("critic", [float(n)] * 4, task=n) for n in range(3)],
        [credited("critic", [1.0] * 4, task=n, solved=True) for n in range(3)],
        [credited("critic", [0.0] * 4, task=n, texts=["no"] * 4) for n in range(3)],
        [credited("critic", [0.0] * 3, task=n) for n in range(2)],
    ],
    ids=["tasks differ", "solved", "one text", "few answers"],
)
def test_advice_when_equal_pay_says_little_then_no_agent_is_named(groups):
    assert not untaught_advice(groups)
