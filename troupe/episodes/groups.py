"""Turns draws into groups (to train on) and an episode record (to read)."""

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from troupe.api.records.v1 import records_pb2 as pb
from troupe.candidates import (
    Candidate,
    Generation,
    finish_reason_to_proto,
    prompt_to_proto,
    spans_to_proto,
)
from troupe.episodes.branch import Branch, Draw
from troupe.episodes.joint import JointNode
from troupe.episodes.prompts import message_fields, tools_to_proto
from troupe.ids import group_id
from troupe.tasks.family import observed_images, tools_of
from troupe.tasks.program_ends import ends_of
from troupe.vision.wire import image_table

SHOWN_CHARS = 200
"""Characters of an answer that a trainer's advice shows."""


@dataclass(frozen=True, slots=True)
class Ending:
    """How an episode ended, over its trajectories or over the leaves of its tree."""

    is_success: bool
    success_fraction: float
    num_turns: int
    team_return: float


def ending_of_branches(branches: Sequence[Branch]) -> Ending:
    """The ending over the sampled trajectories; greedy baselines do not count."""
    sampled = [b for b in branches if not b.is_baseline]
    team = [d.outcomes[d.chosen].team_reward for b in sampled for d in b.draws]
    return Ending(
        is_success=all(b.is_success for b in sampled),
        success_fraction=sum(b.is_success for b in sampled) / len(sampled),
        num_turns=max(b.num_turns for b in sampled),
        team_return=sum(team) / len(sampled),
    )


def ending_of_tree(root: JointNode) -> Ending:
    """The ending over all joint actions; those of one node weigh equally."""
    share = root.success_fraction
    return Ending(share == 1.0, share, root.num_turns, root.team_return)


def groups_by_observation(ticket: pb.Ticket, task_id: str, draws: Sequence[Draw]) -> list[pb.Group]:
    """One group per (agent, turn): members continue one prompt."""
    groups: list[pb.Group] = []
    for draw in draws:
        group = _group(ticket, task_id, draw.agent, draw.turn, draw, pb.GROUP_KEY_OBSERVATION)
        group.prompts.append(prompt_to_proto(draw.generation))
        group.images.extend(_images([draw]))
        group.candidates.extend(_candidates(draw))
        _count_prompts(group, [draw])
        groups.append(group)
    return groups


def groups_by_node(ticket: pb.Ticket, task_id: str, root: JointNode) -> list[pb.Group]:
    """One group per agent and node of a joint tree; groups of one node share its name.

    Every joint action was gone on with. The candidates that are marked as chosen are those of the
    best one at the root, then of the best one at the node that it led to: one line of play.
    """
    groups: list[pb.Group] = []
    line = {node.path for node in root.best_line()}
    for node in root.nodes():
        name = ".".join(str(joint_action) for joint_action in node.path)
        for group in groups_by_observation(ticket, task_id, node.draws):
            group.node = f"{ticket.ticket_id}/n{name}"
            group.group_id += f"/n{name}" if name else ""
            executed = node.executed.get(group.agent) if node.path in line else None
            for candidate in group.candidates:
                candidate.is_chosen = candidate.index == executed
            groups.append(group)
    return groups


def groups_by_task(
    ticket: pb.Ticket,
    task_id: str,
    draws: Sequence[Draw],
    credit: Mapping[tuple[str, int], float] | None = None,
) -> list[pb.Group]:
    """One group per agent over all its turns, for GRPO that compares whole trajectories.

    Every candidate of a trajectory carries the trajectory's return for its agent: the rewards of
    its own actions, and its rewards from the actions of others. ``credit``, by (agent, trajectory)
    and weighted, takes the place of the team's rewards.
    """

    def returns(agent: str) -> dict[tuple[int, int], float]:
        totals: defaultdict[int, float] = defaultdict(float)
        for draw in draws:
            brought = draw.brought(agent) if credit is None else draw.brought_locally(agent)
            totals[draw.trajectory] += brought
        if credit is not None:
            for trajectory in totals:
                totals[trajectory] += credit[agent, trajectory]
        return {(d.trajectory, d.turn): totals[d.trajectory] for d in draws if d.agent == agent}

    return _over_turns(ticket, task_id, draws, returns)


def groups_by_turns(ticket: pb.Ticket, task_id: str, draws: Sequence[Draw]) -> list[pb.Group]:
    """One group per agent over all its turns, each turn with its own reward, for a critic.

    A turn's reward covers everything until the agent's next act: its own terms, and the team's
    reward of every action, whoever acted. Rewards before the first act count towards it.
    """

    def rewards(agent: str) -> dict[tuple[int, int], float]:
        by_turn: defaultdict[tuple[int, int], float] = defaultdict(float)
        turns: defaultdict[int, int] = defaultdict(int)
        for draw in draws:
            if draw.agent == agent:
                turns[draw.trajectory] = draw.turn
            by_turn[draw.trajectory, turns[draw.trajectory]] += draw.brought(agent)
        return by_turn

    return _over_turns(ticket, task_id, draws, rewards)


def groups_by_acts(ticket: pb.Ticket, task_id: str, draws: Sequence[Draw]) -> list[pb.Group]:
    """One group per agent over all its turns, each with what its own action was paid and no more.

    These are the rewards that siblings of one observation are compared by.
    """

    def rewards(agent: str) -> dict[tuple[int, int], float]:
        return {(d.trajectory, d.turn): d.earned(agent) for d in draws if d.agent == agent}

    return _over_turns(ticket, task_id, draws, rewards)


def _over_turns(
    ticket: pb.Ticket,
    task_id: str,
    draws: Sequence[Draw],
    rewards_of: Callable[[str], Mapping[tuple[int, int], float]],
) -> list[pb.Group]:
    """One group per agent; ``rewards_of`` gives an agent's rewards by (trajectory, turn)."""
    groups: list[pb.Group] = []
    for agent in dict.fromkeys(d.agent for d in draws):
        agent_draws = [d for d in draws if d.agent == agent]
        rewards = rewards_of(agent)
        group = _group(ticket, task_id, agent, 0, agent_draws[0], pb.GROUP_KEY_TASK)
        prompts = {d.generation.prompt_digest: prompt_to_proto(d.generation) for d in agent_draws}
        group.prompts.extend(prompts.values())
        group.images.extend(_images(agent_draws))
        for draw in agent_draws:
            for candidate in _candidates(draw):
                candidate.index = len(group.candidates)
                candidate.reward = rewards[draw.trajectory, draw.turn]
                group.candidates.append(candidate)
        _count_prompts(group, list({id(d.generation): d for d in agent_draws}.values()))
        groups.append(group)
    return groups


def episode_record(
    ticket: pb.Ticket,
    task_id: str,
    draws: Sequence[Draw],
    groups: Sequence[pb.Group],
    ending: Ending,
    replayed: Sequence[Draw] = (),
    *,
    trained: Collection[str] = (),
) -> pb.Episode:
    """The tree for readers: all siblings with texts, rewards and times; prompts as messages.

    Prompts' token ids are left out, and those that were sampled where a trainer gets the group too
    (``trained``, by id): Redis holds them once. ``replayed`` draws only count. What several draws
    share was sampled once, and counts once.
    """
    generations = {id(draw.generation): draw.generation for draw in (*draws, *replayed)}
    is_eval = ticket.kind == pb.ROUND_KIND_EVAL
    return pb.Episode(
        episode_id=ticket.ticket_id,
        job_id=ticket.job_id,
        round_id=ticket.round_id,
        kind=ticket.kind,
        step=ticket.step,
        task_id=task_id,
        is_success=ending.is_success,
        success_fraction=ending.success_fraction,
        num_turns=ending.num_turns,
        team_return=ending.team_return,
        groups=[
            _readable(g, draws, omits_tokens=ticket.omits_tokens or g.group_id in trained)
            for g in groups
        ],
        images=_images(draws),
        num_tokens=sum(g.num_sampled_tokens for g in generations.values()),
        program_ends=ends_of(o.info_json for draw in draws for o in draw.outcomes),
        rewards=_brought(draws) if is_eval else {},
    )


def _brought(draws: Sequence[Draw]) -> dict[str, float]:
    """What the only trajectory of an evaluation brought each agent that acted in it."""
    agents = dict.fromkeys(draw.agent for draw in draws)
    return {agent: sum(draw.brought(agent) for draw in draws) for agent in agents}


def _group(
    ticket: pb.Ticket, task_id: str, agent: str, turn: int, draw: Draw, key: pb.GroupKey
) -> pb.Group:
    return pb.Group(
        group_id=group_id(ticket.ticket_id, agent, turn),
        job_id=ticket.job_id,
        step=ticket.step,
        task_id=task_id,
        agent=agent,
        turn=turn,
        policy=draw.policy,
        policy_version=draw.generation.policy_version,
        key=key,
        ticket_id=ticket.ticket_id,
    )


def _count_prompts(group: pb.Group, draws: Sequence[Draw]) -> None:
    """Count the prompt tokens of ``draws``, and how many of them came from an engine's cache."""
    cached: list[int] = []
    for draw in draws:
        generation = draw.generation
        group.num_prompt_tokens += len(generation.prompt_token_ids) * len(generation.candidates)
        if generation.num_cached_tokens is not None:
            cached.append(generation.num_cached_tokens)
    if len(cached) == len(draws):
        group.num_cached_tokens = sum(cached)


def _images(draws: Sequence[Draw]) -> list[pb.ImageData]:
    """The images of the prompts of ``draws``, each once."""
    seen = {i.digest: i for draw in draws for i in observed_images(draw.observation)}
    return image_table(seen.values())


def _candidates(draw: Draw) -> list[pb.Candidate]:
    return [
        pb.Candidate(
            index=index,
            token_ids=candidate.token_ids,
            rollout_logprobs=candidate.logprobs,
            teacher_logprobs=candidate.teacher_logprobs,
            text=candidate.text,
            finish_reason=finish_reason_to_proto(candidate.finish_reason),
            policy_version=_newest(draw.generation, candidate),
            version_spans=spans_to_proto(candidate.version_spans),
            prompt_digest=draw.generation.prompt_digest,
            reward=reward,
            team_reward=outcome.team_reward,
            local_rewards=dict(outcome.local_rewards),
            is_chosen=index == draw.chosen,
            is_done=outcome.is_done,
            is_success=outcome.is_success,
            info_json=outcome.info_json,
            turn=draw.turn,
            trajectory=draw.trajectory,
            is_baseline=draw.is_baseline,
            joint_observation=draw.joint_observation,
        )
        for index, (candidate, outcome, reward) in enumerate(
            zip(draw.generation.candidates, draw.outcomes, draw.rewards, strict=True)
        )
    ]


def _newest(generation: Generation, candidate: Candidate) -> int:
    """The newest version among a candidate's tokens; a group carries the answer's, not older."""
    spans = candidate.version_spans
    return max(version for version, _ in spans) if spans else generation.policy_version


def _readable(group: pb.Group, draws: Sequence[Draw], *, omits_tokens: bool) -> pb.Group:
    """A copy with messages and times in place of the training data; images are the episode's.

    Sampled tokens and their log probabilities stay, unless ``omits_tokens``.
    """
    copy = pb.Group()
    copy.CopyFrom(group)
    copy.ClearField("images")
    agent_draws = [d for d in draws if d.agent == group.agent]
    by_digest = {d.generation.prompt_digest: d.observation for d in agent_draws}
    by_place = {(d.trajectory, d.turn): d for d in agent_draws}
    for prompt in copy.prompts:
        prompt.ClearField("token_ids")
        seen = by_digest[prompt.digest]
        prompt.messages.extend(pb.PromptMessage(**message_fields(m)) for m in seen)
        prompt.tools.extend(tools_to_proto(tools_of(seen)))
    for candidate in copy.candidates:
        candidate.ClearField("joint_observation")
        candidate.ClearField("teacher_logprobs")
        draw = by_place[candidate.trajectory, candidate.turn]
        candidate.generate_s = draw.generate_s
        candidate.env_s = draw.env_s
        if omits_tokens:
            candidate.num_tokens = len(candidate.token_ids)
            candidate.ClearField("token_ids")
            candidate.ClearField("rollout_logprobs")
    return copy


def for_trainer(groups: Sequence[pb.Group]) -> Sequence[pb.Group]:
    """The groups with no more of each text than a trainer shows in its advice, in place.

    It learns from tokens, and the text is in the episode: Redis holds it once.
    """
    for group in groups:
        for candidate in group.candidates:
            if len(candidate.text) > SHOWN_CHARS:
                candidate.text = candidate.text[: SHOWN_CHARS + 1]
    return groups
