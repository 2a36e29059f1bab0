"""arXiv expansion: two paragraphs of one introduction, paid as a pair."""

from random import Random

import pytest

from troupe.tasks.family import SPLITS
from troupe_tasks.writing.abstracts import ABSTRACTS
from troupe_tasks.writing.arxiv import ArxivExpansion
from troupe_tasks.writing.environment import SPLIT_MARK
from troupe_tasks.writing.family import WritingParams

FAMILY = ArxivExpansion(WritingParams())
ENV = FAMILY.environment()
PUBLISHED = ArxivExpansion(WritingParams(reward="published")).environment()


@pytest.mark.parametrize("split", SPLITS)
def test_demonstrate_when_played_on_built_in_abstracts_then_succeeds(split: str) -> None:
    taskset = FAMILY.taskset()
    for index in range(taskset.size(split) or 0):
        state, total = ENV.reset(taskset.task(split, index)), 0.0
        for agent in ("background", "method"):
            done = ENV.step(state, agent, FAMILY.demonstrate(state, agent, Random(0)))
            state, total = done.state, total + done.team_reward
        assert (done.done, done.success) == (True, True)
        assert 2.7 <= total <= FAMILY.return_bound


def test_step_when_paragraphs_are_of_another_abstract_then_only_the_published_reward_pays() -> None:
    task = FAMILY.taskset().task("train", 0)
    other = ABSTRACTS[7]
    both = f"{other.background()}{SPLIT_MARK}{other.method_part()}"
    assert PUBLISHED.step(PUBLISHED.reset(task), "writer", both).team_reward > 2.7
    assert ENV.step(ENV.reset(task), "writer", both).team_reward < 0.7


def test_step_when_words_are_shuffled_then_pays_less_than_a_fifth_of_honest_pairs() -> None:
    total = 0.0
    for seed in range(40):
        state = ENV.reset(FAMILY.taskset().task("train", seed % 8))
        total += ENV.step(
            state, "writer", FAMILY.random_action(state, "writer", Random(seed))
        ).team_reward
    assert total / 40 < 0.55


def test_step_when_a_paragraph_is_too_short_then_its_length_term_is_not_paid() -> None:
    state = ENV.reset(FAMILY.taskset().task("train", 0))
    assert ENV.step(state, "background", "word " * 127).local_rewards == {"length": 0.0}
    assert ENV.step(state, "background", "word " * 128).local_rewards == {"length": 1.0}


def test_abstracts_when_made_then_each_paragraph_has_a_length_that_is_paid() -> None:
    for abstract in ABSTRACTS:
        for paragraph in (abstract.background(), abstract.method_part()):
            assert 128 <= len(paragraph.split()) <= 256
