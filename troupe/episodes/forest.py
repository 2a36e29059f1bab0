"""Plays trees of episodes: an episode, then others that go on from acts of the tree.

A node is a state from which an agent acts; a fork repeats the acts that led to it, and draws and
judges all later ones anew. Owns the growth of the trees. Never talks to a stream and never retries,
like the player that calls it.

Source: Tree-GRPO (arXiv 2509.21240).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from troupe.aio import gather
from troupe.episodes.branch import Branch, BranchContext, Draw
from troupe.episodes.forks import ForkedBranch
from troupe.episodes.ports import Start
from troupe.episodes.seats import play_out
from troupe.samplers.forest import ForestSampler
from troupe.workflows.workflow import Workflow


@dataclass(frozen=True, slots=True)
class _Node:
    """The acts that led to a state, and the surprisal of the first act that was drawn there."""

    path: Sequence[Draw]
    surprisal: float


async def grow_forest(
    context: BranchContext, sampler: ForestSampler, workflow: Workflow, start: Start
) -> list[Branch]:
    """All leaves in order of their trajectories; raises the error of the first failing call."""
    trees = await gather(
        _tree(context, sampler, workflow, start, tree) for tree in range(sampler.params.trees)
    )
    return [branch for branches in trees for branch in branches]


async def _tree(
    context: BranchContext, sampler: ForestSampler, workflow: Workflow, start: Start, tree: int
) -> list[Branch]:
    """One episode, then rounds of others that go on from chosen nodes."""
    leaves: list[Branch] = []
    nodes: list[_Node] = []

    async def play(paths: Sequence[Sequence[Draw]]) -> None:
        first = tree * sampler.leaves + len(leaves)
        grown = [ForkedBranch(context, start, first + i, path) for i, path in enumerate(paths)]
        await gather(play_out(workflow.run, branch, context.spec) for branch in grown)
        leaves.extend(grown)
        for branch, path in zip(grown, paths, strict=True):
            nodes.extend(_nodes(branch.draws, since=len(path) + 1 if nodes else 0))

    await play([[]])
    for number in range(sampler.params.rounds):
        rng = Random(context.derived_seed("tree", tree, number))
        chosen = sampler.nodes_to_expand([node.surprisal for node in nodes], rng)
        await play([nodes[index].path for index in chosen])
    return leaves


def _nodes(draws: Sequence[Draw], *, since: int) -> list[_Node]:
    """The nodes of an episode that come after ``since`` acts or later."""
    places = range(since, len(draws))
    return [_Node(draws[:place], _surprisal(draws[place])) for place in places]


def _surprisal(draw: Draw) -> float:
    """Mean of -log p over the tokens of an act; 0 without log probabilities."""
    logprobs = draw.generation.candidates[draw.chosen].logprobs
    return -math.fsum(logprobs) / len(logprobs) if logprobs else 0.0
