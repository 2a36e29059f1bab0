"""An algorithm of a user that fails, or gives what is no advantage, is told in one sentence."""

import asyncio
import math
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from troupe.algorithms.algorithm import Needs, advantages_of_step
from troupe.algorithms.base import GroupRelative
from troupe.algorithms.load import load_algorithm
from troupe.algorithms.turn_grpo import TurnGrpo
from troupe.candidates import GroupOutcome, Sample
from troupe.episodes.dryrun import dry_run
from troupe.errors import InvalidArgumentError, UnavailableError
from troupe.spec.algorithm import AlgorithmSpec
from troupe.spec.load import load_spec

GROUP = GroupOutcome(
    "e/a/0", "a", 0, [Sample(i, float(i), 3, is_truncated=False) for i in range(4)]
)


def gives(value: Any) -> type[GroupRelative]:
    class Own(GroupRelative):
        def advantages(self, group: GroupOutcome) -> list[float]:
            return value

    return Own


class Misspelt(GroupRelative):
    def advantages(self, group: Any) -> list[float]:
        return [candidate.rewrd for candidate in group.candidates]


class Exits(GroupRelative):
    def advantages(self, group: GroupOutcome) -> list[float]:
        # Not sys.exit, which wandb replaces where it is imported.
        raise SystemExit(3)


class Unneedy(GroupRelative):
    @property
    def needs(self) -> Needs:
        sys.exit(3)


class LosesAGroup(GroupRelative):
    def across_groups(self, groups: Any, advantages: Any) -> list[list[float]]:
        return []


class Needy(GroupRelative):
    def advantages(self, group: GroupOutcome) -> list[float]:
        raise UnavailableError("the judge is down")


class Starved(GroupRelative):
    def advantages(self, group: GroupOutcome) -> list[float]:
        raise MemoryError


HERE = r"\(at .*test_failing_algorithm.py, line \d+\)"


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (gives([1.0]), f"advantages {HERE} gave 1 advantages for the 4 candidates of group e/a/0"),
        (gives([1.0, 0.0, math.nan, 0.0]), f"'Own': advantages {HERE} gave nan in group e/a/0"),
        (gives(["a"] * 4), f"advantages {HERE} gave 'a' in group e/a/0"),
        (gives(None), "raised TypeError: 'NoneType' object is not iterable"),
        (Misspelt, r"raised AttributeError: .*'rewrd' \(at .*: `return \[candidate.rewrd"),
        (Exits, r"advantages raised SystemExit: 3 \(at .*: `raise SystemExit\(3\)`"),
        (LosesAGroup, "across_groups .* gave 0 lists for 1 groups"),
    ],
)
def test_algorithm_when_it_gives_no_advantages_then_one_sentence_names_it_and_its_line(
    kind: type[GroupRelative], words: str
) -> None:
    with pytest.raises(InvalidArgumentError, match=words):
        advantages_of_step(kind(AlgorithmSpec()), [GROUP])


def test_algorithm_when_it_exits_as_it_is_loaded_then_one_sentence_names_it_and_its_line() -> None:
    with pytest.raises(InvalidArgumentError, match="'Unneedy': needs raised SystemExit: 3"):
        load_algorithm(AlgorithmSpec(kind=f"{__name__}:Unneedy"))


@pytest.mark.parametrize(("kind", "error"), [(Needy, UnavailableError), (Starved, MemoryError)])
def test_algorithm_when_a_machine_fails_under_it_then_it_is_not_blamed(
    kind: type[GroupRelative], error: type[Exception]
) -> None:
    with pytest.raises(error):
        advantages_of_step(kind(AlgorithmSpec()), [GROUP])


class MisspeltByTurn(TurnGrpo):
    def advantages(self, group: Any) -> list[float]:
        return [candidate.rewrd for candidate in group.candidates]


def test_algorithm_when_a_play_asks_it_whether_to_draw_again_then_it_is_named_too() -> None:
    spec = load_spec(Path(__file__).parents[3] / "examples" / "demo.yaml")
    own = AlgorithmSpec(kind=f"{__name__}:MisspeltByTurn", group_size=2, redraws=1)
    with pytest.raises(InvalidArgumentError, match="'MisspeltByTurn': advantages raised"):
        asyncio.run(dry_run(spec.model_copy(update={"algorithm": own}), num_tasks=1))


def test_advantages_when_a_critics_value_is_nan_then_the_algorithm_is_not_blamed() -> None:
    fed = replace(GROUP, candidates=[replace(c, value=math.nan) for c in GROUP.candidates])
    [given] = advantages_of_step(gives([math.nan] * 4)(AlgorithmSpec(kind="grpo")), [fed])
    assert all(map(math.isnan, given))
