"""Computes the cost of a sampler's draws in advance."""

import math

from troupe.samplers.coalition import CoalitionSampler
from troupe.samplers.follow import FollowSampler
from troupe.samplers.joint import JointSampler
from troupe.samplers.sampler import Sampler
from troupe.spec.job import JobSpec


def draws_per_act(sampler: Sampler, spec: JobSpec) -> int:
    """Maximum candidates of one agent per turn of a ticket, averaged over the turns.

    Counts greedy episodes, every redraw that a ticket may use, and coalitions as if each agent
    answered anew in all of them.

    Example: an aligned tree of K = 2 over 2 turns has 1 + 2 nodes of 2 candidates: 3 a turn.
    """
    turns = spec.workflow.max_turns
    if isinstance(sampler, JointSampler):
        num_agents = len(spec.workflow.order)
        nodes = 1 + sampler.tree_size(num_agents, turns - 1) if turns > 1 else 1
        draws = math.ceil(sampler.num_candidates * nodes / turns)
    elif isinstance(sampler, FollowSampler):
        draws = math.ceil(sampler.most_draws(tuple(spec.agents), turns) / turns)
    else:
        draws = (sampler.num_trajectories + sampler.num_baselines) * sampler.num_candidates
    if isinstance(sampler, CoalitionSampler) and sampler.params.others == "react":
        draws *= 1 + len(sampler.coalitions(tuple(spec.agents)))
    return draws * (1 + spec.algorithm.redraws)
