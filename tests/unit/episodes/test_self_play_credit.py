"""The result of a game reaches every seat, whoever moved last, on the real Tic-Tac-Toe."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from troupe.api.records.v1 import records_pb2 as pb
from troupe.candidates import Candidate, Generation
from troupe.episodes.build import load_parts
from troupe.episodes.local import LocalEnv
from troupe.episodes.player import Played
from troupe.errors import InvalidArgumentError
from troupe.ids import prompt_digest
from troupe.rewards.mix import terms_by_agent
from troupe.spec import parse_spec
from troupe_tasks.tic_tac_toe import board as boards
from troupe_tasks.tic_tac_toe.state import decode

SEATS = ("player_1", "player_2")


class BoardRollout:
    """Perfect as x; as o it forfeits, or plays the first free cell. Prompts are UTF-8 bytes."""

    def __init__(self, *, forfeits: bool) -> None:
        self._forfeits = forfeits
        self.asked: list[tuple[str, str, int]] = []

    async def generate(self, request, *, timeout_s) -> Generation:
        observation = request.prompt
        now, agent = decode(observation.state), observation.agent
        self.asked.append((agent, request.policy, request.num_candidates))
        is_x = now.mark_of(agent) == boards.X
        cell = boards.best_cells(now.board)[0] if is_x else boards.free(now.board)[0]
        text = "resign" if self._forfeits and not is_x else f"play {boards.NAMES[cell]}"
        ids = list("".join(message.content for message in observation).encode())
        found = [Candidate([1, 2], [-0.5, -0.5], text, "stop")] * request.num_candidates
        return Generation(ids, prompt_digest(ids), found, request.policy_version, 0.0)


def play(
    algorithm: str,
    *,
    forfeits: bool = False,
    weights: Mapping[str, Any] | None = None,
    kind: pb.RoundKind = pb.ROUND_KIND_TRAIN,
    has_rival: bool = False,
    workflow: str = "self_play",
    task_index: int = 0,
) -> tuple[Played, BoardRollout]:
    """One episode of the first training task, and whoever was asked for its moves.

    With ``has_rival`` player_2 is a past version of player_1's policy.
    """
    policies: dict[str, Any] = {"p": {"model": "m"}}
    seats = dict.fromkeys(SEATS, "p")
    if has_rival:
        policies["rival"] = {"model": "m", "past": {"of": "p", "every": 5}}
        seats["player_2"] = "rival"
    spec = parse_spec(
        {
            "name": "t",
            "steps": 1,
            "task": {"name": "tic_tac_toe", "params": {"opening_marks": 2}},
            "workflow": {"kind": workflow, "order": list(SEATS), "max_turns": 5},
            "agents": {agent: {"policy": policy} for agent, policy in seats.items()},
            "policies": policies,
            "algorithm": {"kind": algorithm, "group_size": 2},
            "reward": {"weights": weights or {}},
        }
    )
    parts = load_parts(spec)
    env = LocalEnv(parts.family)
    ticket = pb.Ticket(
        ticket_id="t/train-00000/00000",
        round_id="train-00000",
        kind=kind,
        split="train",
        task_index=task_index,
        policy_versions=dict.fromkeys(policies, 3),
    )
    rollout = BoardRollout(forfeits=forfeits)
    return asyncio.run(parts.player(rollout, env).play(ticket)), rollout


def returns(played: Played) -> dict[str, set[float]]:
    return {g.agent: {c.reward for c in g.candidates} for g in played.groups}


OUTCOME_ONLY = {agent: {"value": 0.0, "format": 0.0, "legal": 0.0} for agent in SEATS}


def test_loser_when_it_did_not_move_last_then_its_whole_trajectory_carries_the_loss() -> None:
    played, rollout = play("grpo", weights=OUTCOME_ONLY)
    mover = rollout.asked[-1][0]
    other = SEATS[1 - SEATS.index(mover)]
    assert returns(played) == {mover: {1.0}, other: {-1.0}}
    # Two trajectories in which the loser moved more than once.
    loser = next(group for group in played.groups if group.agent == other)
    assert len(loser.candidates) >= 4


def test_winner_when_the_other_seat_forfeits_then_gets_the_win_that_it_did_not_move_for() -> None:
    played, rollout = play("grpo", forfeits=True, weights=OUTCOME_ONLY)
    quitter = rollout.asked[-1][0]
    winner = SEATS[1 - SEATS.index(quitter)]
    assert returns(played) == {quitter: {-1.0}, winner: {1.0}}


def test_tree_when_a_move_ends_the_game_then_only_its_own_terms_are_in_its_reward() -> None:
    played, _ = play("at_grpo", forfeits=True)
    final = played.groups[-1]
    rival = SEATS[1 - SEATS.index(final.agent)]
    for candidate in final.candidates:
        # outcome -1, legal -0.5, format -0.1, and what the resignation gave away.
        given_away = candidate.local_rewards["value"]
        assert candidate.reward == pytest.approx(-1.6 + given_away)
        assert candidate.local_rewards[f"{rival}/outcome"] == 1.0


@pytest.mark.parametrize("algorithm", ["grpo", "at_grpo"])
def test_past_version_when_it_plays_a_seat_then_only_the_learners_groups_are_trained(
    algorithm: str,
) -> None:
    played, rollout = play(algorithm, has_rival=True)
    assert {group.policy for group in played.groups} == {"p"}
    assert {group.policy for group in played.episode.groups} == {"p", "rival"}
    assert {(agent, policy) for agent, policy, _ in rollout.asked} == {
        ("player_1", "p"),
        ("player_2", "rival"),
    }
    numbers = {policy: number for _, policy, number in rollout.asked}
    assert numbers == {"p": 2 if algorithm == "at_grpo" else 1, "rival": 1}


def test_past_version_when_evaluated_then_plays_and_nothing_is_trained() -> None:
    played, rollout = play("at_grpo", kind=pb.ROUND_KIND_EVAL, has_rival=True)
    assert played.groups == []
    assert {policy for _, policy, _ in rollout.asked} == {"p", "rival"}


def test_evaluation_when_a_game_ends_then_its_episode_has_what_it_brought_each_seat() -> None:
    played, rollout = play("at_grpo", weights=OUTCOME_ONLY, kind=pb.ROUND_KIND_EVAL)
    mover = rollout.asked[-1][0]
    assert played.episode.rewards == {mover: 1.0, SEATS[1 - SEATS.index(mover)]: -1.0}
    assert not play("at_grpo")[0].episode.rewards


def test_turn_based_when_the_other_seat_is_to_move_then_fails_and_names_self_play() -> None:
    # Tasks 0 and 1 are one opening with either seat first.
    outcomes: list[str] = []
    for index in (0, 1):
        try:
            play("at_grpo", workflow="turn_based", task_index=index)
            outcomes.append("played")
        except InvalidArgumentError as error:
            assert "use workflow kind self_play" in error.message
            outcomes.append("refused")
    assert sorted(outcomes) == ["played", "refused"]


def test_terms_by_agent_when_a_name_has_an_owner_then_it_is_the_owners() -> None:
    assert terms_by_agent("a", {"legal": 1.0, "b/outcome": -1.0}) == {
        "a": {"legal": 1.0},
        "b": {"outcome": -1.0},
    }
