"""Checks that ``step`` is pure: repeated, replayed, forked, and on several threads."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from random import Random

from troupe.conformance import digest, texts
from troupe.conformance.checked_environment import CheckedEnvironment
from troupe.conformance.findings import clipped, tolerant
from troupe.conformance.play import PlayedEpisode, chosen, mixed, play, positions
from troupe.conformance.subject import Subject
from troupe.tasks.family import Transition

NUM_FORKS = 6
"""Candidates that a state is forked into."""


def step_pure(subject: Subject) -> None:
    """One input gives the same judgement later, and in a new environment."""
    judged: list[tuple[bytes, str, str, dict[str, str]]] = []
    for task, state, agent in positions(subject):
        if judged and subject.is_late("step_pure"):
            break
        rng = Random(f"pure/{task.id}")
        with tolerant():
            for action in _actions(subject, state, agent, rng):
                done = subject.env.step(state, agent, action)
                judged.append((state, agent, action, digest.fields_of(done)))
    fresh, again = subject.fresh_env(), 0
    for name, env in (("the same environment, later", subject.env), ("a fresh one", fresh)):
        for number, (state, agent, action, before) in enumerate(judged):
            if number >= 4 and subject.is_late("step_pure"):
                break
            again += 1
            with tolerant():
                after = digest.fields_of(env.step(state, agent, action))
                if different := digest.difference(before, after):
                    subject.findings.fail(
                        "step_pure",
                        f"step(..., {agent!r}, {clipped(action)}) on {name} differs: {different}",
                    )
    _observed_twice(subject, [(state, agent) for state, agent, _, _ in judged], fresh)
    subject.findings.fact("step_pure", f"{len(judged)} steps, judged {again} times more")


def _observed_twice(
    subject: Subject, moments: Sequence[tuple[bytes, str]], fresh: CheckedEnvironment
) -> None:
    for state, agent in moments:
        with tolerant():
            first = digest.of_messages(subject.env.observe(state, agent))
            if first != digest.of_messages(fresh.observe(state, agent)):
                subject.findings.fail(
                    "step_pure", f"observe(..., {agent!r}) differs on a fresh environment"
                )


def _actions(subject: Subject, state: bytes, agent: str, rng: Random) -> list[str]:
    good = chosen(subject, subject.demonstrate, state, agent, rng)
    wild = chosen(subject, subject.random_action, state, agent, rng)
    return [good, wild, texts.mutated(good, [wild], rng), ""]


def replay(subject: Subject) -> None:
    """A whole episode played again from its task takes the same script."""
    count = episodes = 0
    for task in subject.tasks:
        if count and subject.is_late("replay"):
            break
        episodes += 1
        episode = play(subject, task, mixed(subject, 0.5), Random(f"replay/{task.id}"))
        env = subject.fresh_env()
        with tolerant():
            state = env.reset(task)
            for number, move in enumerate(episode.moves):
                if state != move.state:
                    subject.findings.fail(
                        "replay", f"{task.id}: the state before step {number} differs"
                    )
                    break
                done = env.step(state, move.agent, move.action)
                before = digest.fields_of(move.transition)
                if different := digest.difference(before, digest.fields_of(done)):
                    subject.findings.fail(
                        "replay",
                        f"{task.id}: step {number} ({clipped(move.action)}) differs: {different}",
                    )
                    break
                state, count = done.state, count + 1
    subject.findings.fact("replay", f"{episodes} episodes, {count} steps")


def forks(subject: Subject) -> None:
    """K candidates on copies of a state give the same results alone, in any order and at once."""
    count = 0
    for task, state, agent in positions(subject, num_each=2):
        if count and subject.is_late("forks"):
            break
        rng = Random(f"forks/{task.id}")
        with tolerant():
            actions = [chosen(subject, subject.demonstrate, state, agent, rng)]
            for _ in range(NUM_FORKS - 1):
                actions.append(chosen(subject, subject.random_action, state, agent, rng))
            alone = [subject.fresh_env().step(state, agent, action) for action in actions]
            _compare(
                subject, "in order", actions, alone, _stepped(subject.env, state, agent, actions)
            )
            backwards = _stepped(subject.env, state, agent, actions[::-1])[::-1]
            _compare(subject, "in reverse order", actions, alone, backwards)
            judge = partial(subject.env.step, state, agent)
            with ThreadPoolExecutor(4) as pool:
                at_once = list(pool.map(judge, actions))
            _compare(subject, "on four threads", actions, alone, at_once)
            count += 1
    subject.findings.fact("forks", f"{count} states forked {NUM_FORKS} ways")


def _stepped(
    env: CheckedEnvironment, state: bytes, agent: str, actions: Sequence[str]
) -> list[Transition]:
    return [env.step(state, agent, action) for action in actions]


def _compare(
    subject: Subject,
    how: str,
    actions: Sequence[str],
    alone: Sequence[Transition],
    together: Sequence[Transition],
) -> None:
    for action, first, second in zip(actions, alone, together, strict=True):
        different = digest.difference(digest.fields_of(first), digest.fields_of(second))
        if different:
            subject.findings.fail(
                "forks", f"{clipped(action)} judged {how} differs from alone: {different}"
            )


def after_done(subject: Subject) -> None:
    """A step after the end is defined: the episode stays over, and it pays nothing."""
    ended: list[PlayedEpisode] = []
    played = "demonstrated" if subject.has("demonstrate") else "random"
    for task in subject.tasks:
        if ended and subject.is_late("after_done"):
            break
        episode = play(subject, task, subject.demonstrate, Random(f"done/{task.id}"))
        if episode.is_done:
            ended.append(episode)
    if not ended:
        subject.findings.skip("after_done", f"no {played} episode ended by itself")
        return
    for episode in ended:
        state = episode.moves[-1].transition.state
        for agent in subject.family.agents:
            for action in (episode.moves[-1].action, ""):
                with tolerant():
                    _see_after_done(subject, state, agent, action, episode.task.id)
    subject.findings.fact("after_done", f"{len(ended)} ended episodes, each gone on with")


def _see_after_done(subject: Subject, state: bytes, agent: str, action: str, task_id: str) -> None:
    done = subject.env.step(state, agent, action)
    label = f"{task_id}: after the end, {clipped(action)} by '{agent}'"
    if not done.done:
        subject.findings.fail("after_done", f"{label} takes the episode up again")
    if done.team_reward > 0:
        subject.findings.fail("after_done", f"{label} is paid {done.team_reward:g}")
