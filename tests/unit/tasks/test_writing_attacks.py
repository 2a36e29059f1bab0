"""Which dishonest texts the default writing reward refuses, and which it does not.

The second kind is stated, not hidden: docs/tasks/tldr.md says that the family trains form. A gate
that refuses them makes these tests fail, and then the card is to be corrected.
"""

from random import Random
from statistics import median

import pytest
from writing_attacks import ATTACKS, Target, best_drawn, climbed

from troupe_tasks.writing.arxiv import ArxivExpansion
from troupe_tasks.writing.family import WritingFamily, WritingParams
from troupe_tasks.writing.tldr import Tldr

REFUSED = ("salad", "connected", "lead", "repeated")
FAMILIES: tuple[WritingFamily, ...] = (Tldr(WritingParams()), ArxivExpansion(WritingParams()))
BY_NAME = pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)


def _targets(family: WritingFamily, num: int) -> list[Target]:
    return [Target(family.genre, row.text) for row in family.built_in()[:num]]


def _honest(family: WritingFamily) -> float:
    """The median of what the authors' own pairs earn."""
    rows = family.built_in()
    return median(Target(family.genre, row.text).reward(row.pair) for row in rows if row.pair)


@BY_NAME
@pytest.mark.parametrize("attack", REFUSED)
def test_search_when_texts_are_no_prose_then_the_best_earns_half_of_an_honest_pair(
    family: WritingFamily, attack: str
) -> None:
    for seed, target in enumerate(_targets(family, 2)):
        best = best_drawn(target, attack, 40, Random(seed))
        assert target.reward(best) < _honest(family) / 2, best


@pytest.mark.slow
@pytest.mark.timeout(1800)
@BY_NAME
@pytest.mark.parametrize("attack", REFUSED)
def test_search_when_it_draws_ten_thousand_then_the_best_earns_less_than_an_honest_pair(
    family: WritingFamily, attack: str
) -> None:
    (target,) = _targets(family, 1)
    best = best_drawn(target, attack, 10_000, Random(0))
    print(family.name, attack, target.reward(best))
    assert target.reward(best) < _honest(family), best


def test_search_when_sentences_are_templates_then_they_are_paid_as_the_card_says() -> None:
    (target,) = _targets(FAMILIES[0], 1)
    best = best_drawn(target, "templates", 60, Random(0))
    assert target.reward(best) > 0.9 * _honest(FAMILIES[0])


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_search_when_it_climbs_with_each_factor_in_sight_then_it_wins_as_the_card_says() -> None:
    (target,) = _targets(FAMILIES[0], 1)
    start = best_drawn(target, "lead", 100, Random(0))
    assert target.reward(climbed(target, start, 2_000, Random(0))) > _honest(FAMILIES[0])


def test_attacks_when_listed_then_each_is_refused_or_named_in_the_card() -> None:
    assert set(ATTACKS) - set(REFUSED) == {"spans", "templates"}
