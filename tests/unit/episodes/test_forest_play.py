"""Trees of episodes, played and credited, against references of their own.

The references know the game's rules and the policy's draws, and no class of the player.
"""

from random import Random
from typing import Any

import numpy as np
import pytest
from coalition_world import (
    LOCAL_WEIGHT,
    ROUND,
    SEED,
    TEAM_WEIGHT,
    Sayings,
    earned,
    is_over,
    play_team,
    spoken,
    team_job,
)

from troupe.algorithms.load import load_algorithm
from troupe.algorithms.tree_grpo import TreeGrpo
from troupe.api.records.v1 import records_pb2 as pb
from troupe.candidates import group_outcome
from troupe.errors import InvalidArgumentError
from troupe.samplers.forest import ForestParams, ForestSampler
from troupe.seeds import derive_seed
from troupe.spec.algorithm import AlgorithmSpec
from troupe.spec.issues import SpecInvalidError
from troupe.workflows.turn_based import TurnBased


def grown(agents: str, turns: int, *, size: int, params: ForestParams) -> list[list[int]]:
    """The numbers of all episodes, by trajectory."""
    per_tree = size // params.trees
    num_expanded = (per_tree - 1) // params.rounds
    episodes: list[list[int]] = []
    for tree in range(params.trees):
        first = _played_on([], agents, turns, tree * per_tree)
        own = [first]
        # An inner node is where an act was made; it is told by the episode that first had it.
        inner = [first[:depth] for depth in range(len(first))]
        surprise = [0.1 * (1 + number) for number in first]
        for number in range(params.rounds):
            seed = derive_seed(SEED, ROUND, 0, "tree", tree, number)
            if params.expand == "random":
                chosen = Random(seed).choices(inner, k=num_expanded)
            else:
                order = np.argsort(-np.array(surprise), kind="stable")
                chosen = [inner[order[i % len(order)]] for i in range(num_expanded)]
            for begun in chosen:
                numbers = _played_on(begun, agents, turns, tree * per_tree + len(own))
                own.append(numbers)
                for depth in range(len(begun) + 1, len(numbers)):
                    inner.append(numbers[:depth])
                    surprise.append(0.1 * (1 + numbers[depth]))
        episodes.extend(own)
    return episodes


def _played_on(begun: list[int], agents: str, turns: int, trajectory: int) -> list[int]:
    numbers = list(begun)
    while len(numbers) < turns * len(agents) and not (numbers and is_over(numbers)):
        turn, place = divmod(len(numbers), len(agents))
        numbers.append(spoken(agents[place], turn, trajectory, numbers))
    return numbers


def brought(numbers: list[int], place: int, num_agents: int) -> float:
    """The return of the agent at ``place`` of the order."""
    team = sum(earned(numbers[: end + 1]) for end in range(len(numbers)))
    return TEAM_WEIGHT * team + LOCAL_WEIGHT * sum(numbers[place::num_agents])


CASES: list[tuple[int, dict[str, Any]]] = [
    (6, {}),
    (9, {"trees": 3, "rounds": 2}),
    (5, {"trees": 1, "rounds": 4}),
    (8, {"expand": "uncertain"}),
    (10, {"rounds": 2, "expand": "uncertain"}),
]


@pytest.mark.parametrize(("size", "params"), CASES)
@pytest.mark.parametrize("scale", ["std", "none"])
async def test_forest_when_played_then_episodes_and_advantages_equal_the_reference(
    size: int, params: dict[str, Any], scale: str
) -> None:
    agents, turns = "abc", 3
    spec = AlgorithmSpec.model_validate(
        {"kind": "tree_grpo", "group_size": size, "params": params, "scale": scale}
    )
    algorithm = load_algorithm(spec)
    played = await play_team(algorithm.sampler(), team_job(agents, turns=turns, size=size))
    episodes = grown(agents, turns, size=size, params=ForestParams(**params))
    assert len(episodes) == size
    trees = np.arange(size) // (size // ForestParams(**params).trees)
    assert [g.agent for g in played.groups] == list(agents)
    for place, group in enumerate(played.groups):
        said = {(c.trajectory, c.turn): int(c.text) for c in group.candidates}
        assert said == {
            (trajectory, turn): number
            for trajectory, numbers in enumerate(episodes)
            for turn, number in enumerate(numbers[place::3])
        }
        acted = [k for k in range(size) if len(episodes[k]) > place]
        returns = np.array([brought(episodes[k], place, 3) for k in acted])
        expected = dict(zip(acted, _paper(returns, trees[acted], scale), strict=True))
        advantages = algorithm.advantages(group_outcome(group))
        for candidate, value in zip(group.candidates, advantages, strict=True):
            assert value == pytest.approx(expected[candidate.trajectory], abs=1e-9)
        assert len({round(value, 6) for value in advantages}) > 2


def _paper(returns: np.ndarray, trees: np.ndarray, scale: str) -> np.ndarray:
    """The sum of two GRPO advantages: grouped by task, and grouped by tree."""

    def normalised(values: np.ndarray) -> np.ndarray:
        if len(values) < 2:
            return np.zeros(len(values))
        centred = values - values.mean()
        return centred / (values.std(ddof=1) + 1e-6) if scale == "std" else centred

    total = normalised(returns)
    for tree in np.unique(trees):
        total[trees == tree] += normalised(returns[trees == tree])
    return total


def test_advantages_when_worked_by_hand_then_are_the_sum_of_both_levels() -> None:
    algorithm = TreeGrpo(
        AlgorithmSpec(kind="tree_grpo", group_size=4, scale="none"), ForestParams()
    )
    group = pb.Group(group_id="g", agent="a")
    for trajectory, reward in enumerate([1.0, 0.0, 1.0, 1.0]):
        for turn in range(1 + trajectory % 2):
            index = len(group.candidates)
            group.candidates.add(index=index, trajectory=trajectory, turn=turn, reward=reward)
    # Mean of all 3/4; of the trees 1/2 and 1. Trajectories 1 and 3 have two acts each.
    values = algorithm.advantages(group_outcome(group))
    assert values == [0.75, -1.25, -1.25, 0.25, 0.25, 0.25]


async def test_tokens_when_episodes_share_acts_then_count_them_once() -> None:
    rollout = Sayings()
    params = ForestParams(trees=2, rounds=2)
    played = await play_team(ForestSampler(10, params), team_job("abc", turns=3, size=10), rollout)
    acts = [c for group in played.groups for c in group.candidates]
    assert len(rollout.calls) == played.episode.num_tokens < len(acts)
    prompts = sum(len(text) for text in rollout.calls)
    assert sum(group.num_prompt_tokens for group in played.groups) == prompts


async def test_play_when_a_killed_router_plays_again_then_is_equal() -> None:
    sampler = ForestSampler(8, ForestParams())
    one, two = [await play_team(sampler, team_job("ab", turns=3, size=8)) for _ in range(2)]
    assert [g.SerializeToString(deterministic=True) for g in one.groups] == [
        g.SerializeToString(deterministic=True) for g in two.groups
    ]


async def test_evaluation_when_played_then_is_one_plain_episode() -> None:
    rollout, spec = Sayings(), team_job("ab", turns=3, size=8)
    sampler = ForestSampler(8, ForestParams())
    played = await play_team(sampler, spec, rollout, kind=pb.ROUND_KIND_EVAL)
    assert not played.groups
    numbers = _played_on([], "ab", 3, 0)
    assert len(rollout.calls) == len(numbers)


@pytest.mark.parametrize(
    ("size", "params"),
    [(7, {}), (2, {}), (8, {"trees": 3}), (8, {"rounds": 2}), (4, {"trees": 4})],
)
def test_spec_when_episodes_do_not_fill_the_trees_then_is_refused(
    size: int, params: dict[str, Any]
) -> None:
    spec = AlgorithmSpec.model_validate({"kind": "tree_grpo", "group_size": size, "params": params})
    with pytest.raises(SpecInvalidError, match=r"/algorithm/group_size.*such as"):
        load_algorithm(spec)


async def test_fork_when_the_workflow_lets_another_agent_act_then_is_refused() -> None:
    class Moody(TurnBased):
        """Begins with another agent each time."""

        runs = 0

        async def run(self, team: Any, env: Any) -> None:
            self.runs += 1
            order = "ab" if self.runs % 2 else "ba"
            for agent in order * 3:
                await team[agent].act(env.observe(agent))
                if env.is_done:
                    return

    spec = team_job("ab", turns=3, size=8)
    sampler = ForestSampler(8, ForestParams(trees=1))
    with pytest.raises(InvalidArgumentError, match="a workflow must decide by the state"):
        await play_team(sampler, spec, workflow=Moody(spec.workflow))
