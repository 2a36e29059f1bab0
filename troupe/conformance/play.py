"""Plays episodes on a watched environment and remembers every step."""

from dataclasses import dataclass, field
from random import Random

from troupe.conformance.checked_environment import CheckedEnvironment
from troupe.conformance.findings import BrokenStepError, claimed, tolerant
from troupe.conformance.subject import Subject
from troupe.tasks.family import Observation, Task, Transition
from troupe.tasks.optional import Policy


@dataclass(frozen=True, slots=True)
class Move:
    """One judged action: the state before it, the agent, the text, and the transition."""

    state: bytes
    agent: str
    action: str
    transition: Transition


@dataclass(slots=True)
class PlayedEpisode:
    """One line of play. It ends early where the family broke a step."""

    task: Task
    moves: list[Move] = field(default_factory=list[Move])

    @property
    def team_return(self) -> float:
        """Sum of team rewards."""
        return sum(move.transition.team_reward for move in self.moves)

    @property
    def is_done(self) -> bool:
        """Whether the environment ended the episode."""
        return bool(self.moves) and self.moves[-1].transition.done


def agent_to_act(subject: Subject, state: bytes, number: int) -> str:
    """The agent that acts at step ``number`` (from 0): the next in order that sees something."""
    order = subject.order
    for offset in range(len(order)):
        agent = order[(number + offset) % len(order)]
        if subject.env.observe(state, agent):
            return agent
    return order[number % len(order)]


def play(
    subject: Subject,
    task: Task,
    policy: Policy,
    rng: Random,
    *,
    env: CheckedEnvironment | None = None,
    max_steps: int | None = None,
) -> PlayedEpisode:
    """Play one episode with ``policy`` in all seats, until done or for ``max_steps`` steps."""
    env = env or subject.env
    episode = PlayedEpisode(task)
    with tolerant():
        state = env.reset(task)
        for number in range(max_steps or subject.limits.max_steps):
            agent = agent_to_act(subject, state, number)
            action = chosen(subject, policy, state, agent, rng)
            transition = env.step(state, agent, action)
            episode.moves.append(Move(state, agent, action, transition))
            state = transition.state
            if transition.done:
                break
            _see_somebody_acts(subject, state, task)
    return episode


def _see_somebody_acts(subject: Subject, state: bytes, task: Task) -> None:
    if not any(subject.env.observe(state, agent) for agent in subject.family.agents):
        subject.findings.fail(
            "messages", f"{task.id}: the episode is not done and no agent is shown anything"
        )
        raise BrokenStepError


def chosen(subject: Subject, policy: Policy, state: bytes, agent: str, rng: Random) -> str:
    """The policy's text; raising or returning no text is a finding under ``policies``."""
    try:
        action = claimed(policy(state, agent, rng))
    except (Exception, SystemExit) as error:
        subject.findings.fail(
            "policies", f"{_name(policy)} for '{agent}' raised {type(error).__name__}: {error}"
        )
        raise BrokenStepError from error
    if not isinstance(action, str):
        subject.findings.fail(
            "policies", f"{_name(policy)} for '{agent}' gave a {type(action).__name__}, no text"
        )
        raise BrokenStepError
    return action


def prompts(subject: Subject, state: bytes) -> dict[str, Observation]:
    """What every agent sees in ``state``."""
    return {agent: subject.env.observe(state, agent) for agent in subject.family.agents}


def positions(subject: Subject, *, num_each: int = 3) -> list[tuple[Task, bytes, str]]:
    """Task, state and acting agent of first states and of some states of good play."""
    moments: list[tuple[Task, bytes, str]] = []
    for task in subject.tasks:
        if moments and subject.is_over:
            break
        rng = Random(f"{subject.limits.seed}/{task.id}")
        with tolerant():
            first = subject.env.reset(task)
            moments.append((task, first, agent_to_act(subject, first, 0)))
        episode = play(subject, task, mixed(subject, 0.5), rng, max_steps=2 * num_each)
        later = [move for move in episode.moves if move.state != moments[-1][1]]
        moments += [(task, move.state, move.agent) for move in later[: num_each - 1]]
    return moments


def mixed(subject: Subject, share_good: float) -> Policy:
    """A policy that demonstrates with probability ``share_good``, else acts at random."""

    def policy(state: bytes, agent: str, rng: Random) -> str:
        good = rng.random() < share_good
        act = subject.demonstrate if good else subject.random_action
        return act(state, agent, rng)

    return policy


def _name(policy: Policy) -> str:
    return getattr(policy, "__qualname__", repr(policy))
