"""Self-play: whoever is to move acts, whichever seat begins, and a missing seat is named."""

import asyncio

import pytest

from troupe.errors import InvalidArgumentError
from troupe.spec.job import WorkflowSpec
from troupe.tasks.family import Message
from troupe.workflows.self_play import SelfPlay
from troupe.workflows.workflow import Action


class CountdownGame:
    """Seats take turns from ``first`` on; over after ``length`` moves."""

    def __init__(self, seats: list[str], first: int, length: int) -> None:
        self._seats, self._at, self._left = seats, first, length
        self.moves: list[str] = []

    @property
    def is_done(self) -> bool:
        return self._left == 0

    def observe(self, agent: str):
        to_move = self._seats[self._at] == agent and not self.is_done
        return (Message("user", f"{self._left} left"),) if to_move else ()

    def move(self, agent: str) -> None:
        self.moves.append(agent)
        self._at, self._left = (self._at + 1) % len(self._seats), self._left - 1


class CountdownSeat:
    """Moves in the game; remembers nothing."""

    def __init__(self, agent: str, game: CountdownGame) -> None:
        self._agent, self._game = agent, game

    async def act(self, observation) -> Action:
        assert observation == self._game.observe(self._agent)
        self._game.move(self._agent)
        return Action("down", 0.0)


def run(game: CountdownGame, order: list[str], max_turns: int = 9) -> list[str]:
    team = {agent: CountdownSeat(agent, game) for agent in order}
    workflow = SelfPlay(WorkflowSpec(kind="self_play", order=order, max_turns=max_turns))
    asyncio.run(workflow.run(team, game))
    return game.moves


def test_seats_when_the_second_begins_then_it_acts_first_and_they_alternate() -> None:
    assert run(CountdownGame(["a", "b"], 1, 5), ["a", "b"]) == ["b", "a", "b", "a", "b"]


def test_seats_when_named_in_another_order_then_the_environments_turns_hold() -> None:
    assert run(CountdownGame(["a", "b", "c"], 0, 4), ["c", "a", "b"]) == ["a", "b", "c", "a"]


def test_game_when_over_at_once_then_nobody_acts() -> None:
    assert run(CountdownGame(["a", "b"], 0, 0), ["a", "b"]) == []


def test_max_turns_when_reached_by_a_seat_then_the_game_stops_before_its_next_turn() -> None:
    assert run(CountdownGame(["a", "b"], 1, 99), ["a", "b"], 2) == ["b", "a", "b", "a"]


def test_single_seat_when_the_environment_plays_the_others_then_it_acts_alone() -> None:
    assert run(CountdownGame(["a"], 0, 3), ["a"]) == ["a", "a", "a"]


def test_game_when_it_waits_for_a_seat_that_the_job_lacks_then_fails_and_says_so() -> None:
    game = CountdownGame(["a", "b", "c"], 0, 9)
    with pytest.raises(InvalidArgumentError, match="none of a, b is to move"):
        run(game, ["a", "b"])
    assert game.moves == ["a", "b"]
