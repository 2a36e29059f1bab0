"""Plays a tree of joint actions: agents act at once, and every joint action is followed.

Each agent has K candidates per node. Owns the play of the tree and the returns that propagate back
through it. Never talks to a stream and never retries, like the player that calls it.
"""

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from troupe.aio import gather
from troupe.candidates import Generation
from troupe.episodes.branch import BranchContext, Draw, check_may_act
from troupe.episodes.ports import Outcome, Start
from troupe.rewards.mix import terms_by_agent
from troupe.samplers.joint import MAX_JOINT_ACTIONS, JointAction, JointSampler
from troupe.spec.issues import Issue, SpecInvalidError
from troupe.spec.job import JobSpec
from troupe.tasks.family import Observation
from troupe.workflows.workflow import AtOnceWorkflow, Workflow

Chain = Sequence[tuple[str, Outcome]]
"""The executed actions of one joint action, by actor; shorter if the episode ended within it."""


@dataclass(frozen=True, slots=True)
class JointNode:
    """One history of the team: a draw for each agent, and the outcome of every joint action.

    ``returns`` holds each agent's return of each joint action, ``path`` the joint actions that led
    here. The draws' rewards are the returns of the individual candidates. ``best`` is the joint
    action with the highest mean return of the agents, ``executed`` its candidate by agent, without
    agents that did not act in it because the episode ended before.
    """

    path: tuple[int, ...]
    draws: Sequence[Draw]
    returns: Mapping[str, Sequence[float]]
    team_return: float
    success_fraction: float
    children: Sequence["JointNode"]
    best: int
    executed: Mapping[str, int]

    @property
    def num_turns(self) -> int:
        """Number of turns at and below this node."""
        return 1 + max((child.num_turns for child in self.children), default=0)

    def nodes(self) -> list["JointNode"]:
        """This node and all below it, each before its successors."""
        return [self, *(node for child in self.children for node in child.nodes())]

    def best_line(self) -> list["JointNode"]:
        """This node, the node that its best joint action led to, and so on."""
        below = (child for child in self.children if child.path[-1] == self.best)
        return [self, *(node for child in below for node in child.best_line())]


class JointTree:
    """Plays the tree of one ticket.

    The return of a joint action is its reward plus ``gamma`` times the mean return of the joint
    actions at the node that it leads to. Its reward for an agent counts the team's reward of every
    action in it, and the agent's own terms. A candidate's return is the mean over the joint actions
    that it is part of; CoMLRL sums them in cross mode, which makes advantages grow with
    K ** (agents - 1).

    Source: CoMLRL (arXiv 2508.04652), Section 4: MAGRPO's multi-turn returns.
    """

    def __init__(
        self, context: BranchContext, sampler: JointSampler, workflow: AtOnceWorkflow
    ) -> None:
        self._context = context
        self._sampler = sampler
        self._order = workflow.order
        self._max_turns = workflow.max_turns
        self._actions = sampler.joint_actions(len(self._order))

    async def play(self, start: Start) -> JointNode:
        """Play the whole tree from ``start``; raises the error of the first failing call."""
        return await self._node(start.state, start.observations, ())

    async def _node(
        self, state: bytes, observations: Mapping[str, Observation], path: tuple[int, ...]
    ) -> JointNode:
        for agent in self._order:
            check_may_act(agent, observations[agent])
        began = time.monotonic()
        results = await gather(self._sample(a, observations[a], path) for a in self._order)
        sampled = time.monotonic()
        generations = dict(zip(self._order, results, strict=True))
        chains = await self._execute(state, generations)
        judged = time.monotonic()
        children = await self._children(chains, path)
        returns = {agent: self._returns(agent, chains, children) for agent in self._order}
        best = self._sampler.choose([_mean(each) for each in zip(*returns.values(), strict=True)])
        draws = [
            self._draw(
                agent,
                path,
                observations[agent],
                generations[agent],
                chains,
                returns[agent],
                best,
                (sampled - began, judged - sampled),
            )
            for agent in self._order
        ]
        below = [children.get(j) for j in range(len(chains))]
        return JointNode(
            path=path,
            draws=draws,
            returns=returns,
            team_return=_mean(
                [
                    sum(o.team_reward for _, o in chain) + (child.team_return if child else 0.0)
                    for chain, child in zip(chains, below, strict=True)
                ]
            ),
            success_fraction=_mean(
                [
                    child.success_fraction if child else float(chain[-1][1].is_success)
                    for chain, child in zip(chains, below, strict=True)
                ]
            ),
            children=[child for child in below if child],
            best=best,
            executed=dict(
                zip((actor for actor, _ in chains[best]), self._actions[best], strict=False)
            ),
        )

    async def _sample(
        self, agent: str, observation: Observation, path: tuple[int, ...]
    ) -> Generation:
        return await self._context.sample(
            agent, len(path), self._number(path), observation, self._sampler.num_candidates
        )

    def _number(self, path: tuple[int, ...]) -> int:
        """Index of a node among those of its turn."""
        number = 0
        for joint_action in path:
            number = number * len(self._actions) + joint_action
        return number

    async def _execute(
        self, state: bytes, generations: Mapping[str, Generation]
    ) -> list[list[tuple[str, Outcome]]]:
        """One chain per joint action; common prefixes are judged once."""
        chains: dict[JointAction, list[tuple[str, Outcome]]] = {(): []}
        for place, agent in enumerate(self._order):
            going = [b for b, chain in chains.items() if not (chain and chain[-1][1].is_done)]
            indices = {
                b: sorted({a[place] for a in self._actions if a[:place] == b}) for b in going
            }
            said = [candidate.action for candidate in generations[agent].candidates]
            judged = await gather(
                self._context.outcomes(
                    chains[b][-1][1].state if b else state, agent, [said[k] for k in indices[b]]
                )
                for b in going
            )
            for beginning, outcomes in zip(going, judged, strict=True):
                chain = chains.pop(beginning)
                for k, outcome in zip(indices[beginning], outcomes, strict=True):
                    chains[*beginning, k] = [*chain, (agent, outcome)]
        return [chains[_begun(action, chains)] for action in self._actions]

    async def _children(
        self, chains: Sequence[Chain], path: tuple[int, ...]
    ) -> dict[int, JointNode]:
        """Successor nodes, by joint action, of those that did not end the episode."""
        if len(path) + 1 == self._max_turns:
            return {}
        ends = {j: chain[-1][1] for j, chain in enumerate(chains) if not chain[-1][1].is_done}
        nodes = await gather(
            self._node(end.state, end.observations, (*path, j)) for j, end in ends.items()
        )
        return dict(zip(ends, nodes, strict=True))

    def _returns(
        self, agent: str, chains: Sequence[Chain], children: Mapping[int, JointNode]
    ) -> list[float]:
        """R_j = r_j + gamma * mean of the successor's returns."""
        mix, gamma = self._context.mix, self._sampler.gamma
        returns: list[float] = []
        for j, chain in enumerate(chains):
            reward = math.fsum(
                mix(agent, o.team_reward, terms_by_agent(actor, o.local_rewards).get(agent, {}))
                for actor, o in chain
            )
            later = _mean(children[j].returns[agent]) if j in children else 0.0
            returns.append(reward + gamma * later)
        return returns

    def _draw(
        self,
        agent: str,
        path: tuple[int, ...],
        observation: Observation,
        generation: Generation,
        chains: Sequence[Chain],
        returns: Sequence[float],
        best: int,
        times: tuple[float, float],
    ) -> Draw:
        place = self._order.index(agent)
        parts = [
            [j for j, action in enumerate(self._actions) if action[place] == k]
            for k in range(self._sampler.num_candidates)
        ]
        rewards = [_mean([returns[j] for j in part]) for part in parts]
        return Draw(
            agent=agent,
            turn=len(path),
            policy=self._context.spec.agents[agent].policy,
            trajectory=self._number(path),
            observation=observation,
            generation=generation,
            outcomes=[_overall(agent, [chains[j] for j in part]) for part in parts],
            rewards=rewards,
            chosen=self._actions[best][place],
            generate_s=times[0],
            env_s=times[1],
        )


def _begun(action: JointAction, chains: Mapping[JointAction, object]) -> JointAction:
    """The executed prefix of ``action``."""
    return next(action[:n] for n in range(len(action), 0, -1) if action[:n] in chains)


def _overall(agent: str, chains: Sequence[Chain]) -> Outcome:
    """A candidate's outcome over the joint actions that it is part of, for people to read.

    Rewards are means; the flags hold if they hold for all joint actions.
    """
    outcomes = [outcome for chain in chains for actor, outcome in chain if actor == agent]
    ends = [chain[-1][1] for chain in chains]
    names = sorted({name for outcome in outcomes for name in outcome.local_rewards})
    return Outcome(
        state=b"",
        team_reward=_mean([math.fsum(o.team_reward for _, o in chain) for chain in chains]),
        local_rewards={n: _mean([o.local_rewards.get(n, 0.0) for o in outcomes]) for n in names},
        is_done=all(end.is_done for end in ends),
        is_success=all(end.is_success for end in ends),
        info_json=outcomes[0].info_json if outcomes else "{}",
        observations={},
    )


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def at_once(spec: JobSpec, workflow: Workflow, sampler: JointSampler) -> AtOnceWorkflow:
    """``workflow``, checked to be one in which agents act at once.

    Raises SpecInvalidError when it is not, or when the tree of one task would be too large.
    """
    if not isinstance(workflow, AtOnceWorkflow):
        message = (
            f"algorithm '{spec.algorithm.kind}' draws joint actions, so the agents must act at "
            f"once; under '{spec.workflow.kind}' they see what the others do. Use kind simultaneous"
        )
        raise SpecInvalidError([Issue("/workflow/kind", message)])
    size = sampler.tree_size(len(workflow.order), workflow.max_turns)
    if size > MAX_JOINT_ACTIONS:
        message = (
            f"the tree of one task would have {size} joint actions and {MAX_JOINT_ACTIONS} are the "
            "most; lower max_turns or /algorithm/group_size, or use joint mode aligned"
        )
        raise SpecInvalidError([Issue("/workflow/max_turns", message)])
    return workflow
