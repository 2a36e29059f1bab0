"""Shapley and counterfactual credit of played episodes, against references of their own.

The references know the game's rules and the policy's draws, and no class of the player.
"""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from itertools import combinations, permutations
from typing import Literal

import pytest
from coalition_world import (
    LOCAL_WEIGHT,
    TEAM_WEIGHT,
    Sayings,
    SayingsEnv,
    earned,
    is_over,
    play_team,
    shown,
    spoken,
    team_job,
)

from troupe.algorithms.ccpo import CcpoParams
from troupe.algorithms.load import load_algorithm
from troupe.api.records.v1 import records_pb2 as pb
from troupe.episodes.player import Played
from troupe.samplers.coalition import CoalitionParams, CoalitionSampler
from troupe.seeds import derive_seed
from troupe.spec.algorithm import AlgorithmSpec
from troupe.tasks.family import BoundedObservation

Record = Mapping[tuple[str, int], int]
Others = Literal["react", "repeat"]
Kind = Literal["shapley", "counterfactual"]


def game(
    agents: Sequence[str],
    trajectory: int,
    turns: int,
    present: Collection[str],
    recorded: Record | None = None,
) -> tuple[dict[tuple[str, int], int], list[int]]:
    """What was said by whom, and all numbers; absent agents say 0.

    With ``recorded``, present agents repeat what they said there.
    """
    said: dict[tuple[str, int], int] = {}
    numbers: list[int] = []
    for turn in range(turns):
        for agent in agents:
            number = 0
            if agent in present and recorded is not None:
                number = recorded.get((agent, turn), 0)
            elif agent in present:
                number = spoken(agent, turn, trajectory, numbers)
            said[agent, turn] = number
            numbers.append(number)
            if is_over(numbers):
                return said, numbers
    return said, numbers


def answered(
    agents: str, trajectories: int, turns: int, coalitions: Sequence[Collection[str]]
) -> set[tuple[int, str, int, str]]:
    """The trajectory, agent, turn and text of every prompt that was answered."""
    found: set[tuple[int, str, int, str]] = set()
    for trajectory in range(trajectories):
        for team in (agents, *coalitions):
            said, numbers = game(agents, trajectory, turns, team)
            for index, (agent, turn) in enumerate(said):  # dicts keep the order of the acts
                if agent in team:
                    found.add((trajectory, agent, turn, shown(agent, numbers[:index])))
    return found


def team_total(numbers: Sequence[int]) -> float:
    return sum(earned(numbers[: end + 1]) for end in range(len(numbers)))


def worths(
    agents: Sequence[str], trajectory: int, turns: int, others: Others
) -> tuple[dict[frozenset[str], float], dict[tuple[str, int], int]]:
    """The worth of every coalition in one episode, and what was said in that episode."""
    whole, _ = game(agents, trajectory, turns, agents)
    recorded = whole if others == "repeat" else None
    worth: dict[frozenset[str], float] = {}
    for order in permutations(agents):
        for size in range(len(agents) + 1):
            team = frozenset(order[:size])
            worth[team] = team_total(game(agents, trajectory, turns, team, recorded)[1])
    return worth, whole


def by_joining(agents: Sequence[str], worth: Mapping[frozenset[str], float]) -> dict[str, float]:
    """Shapley's values as the mean, over all orders of joining, of what an agent adds."""
    orders = list(permutations(agents))
    value = dict.fromkeys(agents, 0.0)
    for order in orders:
        for place, agent in enumerate(order):
            before = frozenset(order[:place])
            value[agent] += (worth[before | {agent}] - worth[before]) / len(orders)
    return value


def by_absence(agents: Sequence[str], worth: Mapping[frozenset[str], float]) -> dict[str, float]:
    whole = frozenset(agents)
    return {agent: worth[whole] - worth[whole - {agent}] for agent in agents}


def paid(played: Played) -> dict[tuple[str, int], float]:
    return {(g.agent, c.trajectory): c.reward for g in played.groups for c in g.candidates}


@pytest.mark.parametrize("kind", ["shapley", "counterfactual"])
@pytest.mark.parametrize("others", ["react", "repeat"])
@pytest.mark.parametrize(("agents", "turns"), [("ab", 3), ("abc", 2), ("abcd", 2), ("a", 2)])
async def test_credit_when_played_then_equals_the_reference(
    kind: Kind, others: Others, agents: str, turns: int
) -> None:
    params = CoalitionParams(team_weight=0.3, credit_weight=2.0, others=others, default_action="0")
    spec = team_job(agents, turns=turns, size=4)
    rewards = paid(await play_team(CoalitionSampler(4, kind, params), spec))
    parts: list[float] = []
    for trajectory in range(4):
        worth, said = worths(agents, trajectory, turns, others)
        credit = (by_joining if kind == "shapley" else by_absence)(agents, worth)
        for agent in {agent for agent, _ in said}:
            own = sum(number for (who, _), number in said.items() if who == agent)
            expected = TEAM_WEIGHT * (0.3 * worth[frozenset(agents)] + 2.0 * credit[agent])
            expected += LOCAL_WEIGHT * own
            assert rewards[agent, trajectory] == pytest.approx(expected, abs=1e-9)
            parts.append(credit[agent])
    assert len({round(part, 6) for part in parts}) > 1, "the game must have something to tell apart"


async def test_parts_when_summed_then_are_the_return_less_that_of_absent_agents() -> None:
    params = CoalitionParams(default_action="0")
    rewards = paid(await play_team(CoalitionSampler(3, "shapley", params), team_job("abc", size=3)))
    for trajectory in range(3):
        worth, said = worths("abc", trajectory, 2, "react")
        local = LOCAL_WEIGHT * sum(said.values())
        total = sum(rewards[agent, trajectory] for agent in "abc") - local
        expected = TEAM_WEIGHT * (worth[frozenset("abc")] - worth[frozenset()])
        assert total == pytest.approx(expected, abs=1e-9)


async def test_agent_when_it_says_its_default_then_is_paid_nothing() -> None:
    # Absent or not, the agent says the same, so no coalition changes.
    agents, turns = "abc", 1
    episodes = {trajectory: game(agents, trajectory, turns, agents)[0] for trajectory in range(8)}
    trajectory, said = next(item for item in episodes.items() if len(item[1]) == 3)
    defaults = {agent: str(said[agent, 0]) for agent in agents}
    params = CoalitionParams(default_actions=defaults)
    spec = team_job(agents, turns=turns, size=8)
    rewards = paid(await play_team(CoalitionSampler(8, "shapley", params), spec))
    for agent in agents:
        assert rewards[agent, trajectory] == pytest.approx(LOCAL_WEIGHT * said[agent, 0], abs=1e-12)


async def test_play_when_a_killed_router_plays_again_then_is_equal() -> None:
    sampler = CoalitionSampler(3, "shapley", CoalitionParams())
    one, two = [await play_team(sampler, team_job("abc", size=3)) for _ in range(2)]
    assert [g.SerializeToString(deterministic=True) for g in one.groups] == [
        g.SerializeToString(deterministic=True) for g in two.groups
    ]
    assert one.episode.num_tokens == two.episode.num_tokens


async def test_tokens_when_others_repeat_then_replays_are_free() -> None:
    rollout = Sayings()
    sampler = CoalitionSampler(3, "shapley", CoalitionParams(others="repeat"))
    played = await play_team(sampler, team_job("abc", size=3), rollout)
    acts = sum(len(game("abc", trajectory, 2, "abc")[0]) for trajectory in range(3))
    assert len(rollout.calls) == played.episode.num_tokens == acts


async def test_tokens_when_others_react_then_only_changed_prompts_are_answered() -> None:
    rollout = Sayings()
    sampler = CoalitionSampler(3, "counterfactual", CoalitionParams(default_action="0"))
    played = await play_team(sampler, team_job("abc", size=3), rollout)
    fresh = answered("abc", 3, 2, [set("abc") - {absent} for absent in "abc"])
    assert len(rollout.calls) == played.episode.num_tokens == len(fresh)


async def test_tokens_when_coalitions_see_the_same_then_one_answer_is_of_them_all() -> None:
    rollout = Sayings()
    sampler = CoalitionSampler(3, "shapley", CoalitionParams(default_action="0"))
    played = await play_team(sampler, team_job("abc", size=3), rollout)
    teams = [set(team) for size in range(3) for team in combinations("abc", size)]
    fresh = answered("abc", 3, 2, teams)
    assert len(rollout.calls) == played.episode.num_tokens == len(fresh)


async def test_prompt_when_only_its_bound_differs_then_is_answered_again() -> None:
    class Bounded(SayingsEnv):
        """An answer may be as long as the first number says, which is not shown."""

        def _views(self, numbers):
            bound = 1 + (numbers[0] if numbers else 0)
            views = super()._views(numbers)
            return {agent: BoundedObservation(view, bound) for agent, view in views.items()}

    asked: set[tuple[str, int]] = set()

    class Noting(Sayings):
        async def generate(self, request, *, timeout_s):
            asked.add((request.prompt[0].content, request.sampling.max_new_tokens))
            return await super().generate(request, timeout_s=timeout_s)

    sampler = CoalitionSampler(8, "shapley", CoalitionParams(default_action="0"))
    job = team_job("abc", turns=1, size=8)
    await play_team(sampler, job, Noting(), env=Bounded("abc"))
    expected: set[tuple[str, int]] = set()
    for trajectory in range(8):
        for team in [set("abc"), *(set(t) for size in range(3) for t in combinations("abc", size))]:
            said, numbers = game("abc", trajectory, 1, team)
            for index, (agent, _) in enumerate(said):
                bound = 1 + (numbers[0] if index else 0)
                if agent in team:
                    expected.add((shown(agent, numbers[:index]), bound))
    assert asked == expected


async def test_agent_when_nobody_hears_it_and_seeds_are_ignored_then_is_paid_nothing() -> None:
    class Unseeded(Sayings):
        async def generate(self, request, *, timeout_s):
            request = replace(request, seed=len(self.calls))
            return await super().generate(request, timeout_s=timeout_s)

    class Unheard(SayingsEnv):
        """What c says is as if it had not been said."""

        async def step(self, *, state, agent, actions, observe, timeout_s):
            if agent != "c":
                return await super().step(
                    state=state, agent=agent, actions=actions, observe=observe, timeout_s=timeout_s
                )
            nothing = replace(self._outcome(json.loads(state)), team_reward=0.0)
            return [replace(nothing, local_rewards={"size": 0.0})] * len(actions)

    sampler = CoalitionSampler(16, "shapley", CoalitionParams(default_action="0"))
    job = team_job("abc", turns=2, size=16)
    played = await play_team(sampler, job, Unseeded(), env=Unheard("abc"))
    paid_of: dict[str, list[float]] = {"b": [], "c": []}
    for group in played.groups:
        if group.agent in paid_of:
            paid_of[group.agent] += [candidate.reward for candidate in group.candidates]
    assert len(paid_of["c"]) > 16
    assert paid_of["c"] == pytest.approx([0.0] * len(paid_of["c"]), abs=1e-12)
    assert any(paid_of["b"])


async def test_record_when_coalitions_were_played_then_shows_the_whole_team_alone() -> None:
    sampler = CoalitionSampler(2, "shapley", CoalitionParams(default_action="0"))
    played = await play_team(sampler, team_job("abc"))
    numbers = [game("abc", trajectory, 2, "abc")[1] for trajectory in range(2)]
    assert played.episode.team_return == pytest.approx(sum(map(team_total, numbers)) / 2)
    assert sum(len(g.candidates) for g in played.episode.groups) == sum(map(len, numbers))
    assert {c.trajectory for g in played.groups for c in g.candidates} == {0, 1}
    assert {g.key for g in played.groups} == {pb.GROUP_KEY_TASK}


async def test_others_when_an_agent_is_absent_then_its_words_change_nothing() -> None:
    # What the team gets without b is a baseline of b's reward: it must not depend on b's draws.
    class Louder(Sayings):
        """b says something else; a draws as before."""

        async def generate(self, request, *, timeout_s):
            if request.prompt[0].content.startswith("b"):
                request = replace(request, seed=derive_seed(request.seed, "other"))
            return await super().generate(request, timeout_s=timeout_s)

    spec = team_job("ab", size=6, turns=3)
    # The credit's weight cancels the return: what is left is the return without the agent.
    params = CcpoParams(team_weight=1.0, credit_weight=1.0, default_action="0")
    sampler = CoalitionSampler(6, "counterfactual", params)
    without: list[list[float]] = []
    for rollout in (Sayings(), Louder()):
        played = await play_team(sampler, spec, rollout)
        totals: dict[int, float] = {}
        local: dict[int, float] = {}
        for group in played.groups:
            for c in group.candidates:
                totals[c.trajectory] = totals.get(c.trajectory, 0.0) + c.team_reward
                if group.agent == "b":
                    local[c.trajectory] = local.get(c.trajectory, 0.0) + c.local_rewards["size"]
        rewards = paid(played)
        without.append(
            [
                2 * totals[k] - (rewards["b", k] - LOCAL_WEIGHT * local[k]) / TEAM_WEIGHT
                for k in local
            ]
        )
    assert without[0] == pytest.approx(without[1], abs=1e-9)
    assert len(set(without[0])) > 1


async def test_ccpo_when_left_at_its_defaults_then_adds_a_fifth_of_the_difference() -> None:
    sampler = load_algorithm(AlgorithmSpec(kind="ccpo", group_size=4)).sampler()
    rewards = paid(await play_team(sampler, team_job("abc", size=4)))
    for trajectory in range(4):
        worth, said = worths("abc", trajectory, 2, "react")
        whole, without = worth[frozenset("abc")], worth[frozenset("ac")]
        local = LOCAL_WEIGHT * sum(number for (who, _), number in said.items() if who == "b")
        expected = TEAM_WEIGHT * (whole + 0.2 * (whole - without)) + local
        assert rewards["b", trajectory] == pytest.approx(expected, abs=1e-9)


async def test_evaluation_when_played_then_replays_nothing() -> None:
    rollout = Sayings()
    sampler = CoalitionSampler(4, "shapley", CoalitionParams())
    played = await play_team(sampler, team_job("abc", size=4), rollout, kind=pb.ROUND_KIND_EVAL)
    assert not played.groups
    assert len(rollout.calls) == len(game("abc", 0, 2, "abc")[0])
