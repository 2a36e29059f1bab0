"""Checks that rewards are honest: none above the bound, and none for thoughtless texts.

The search plays sequences of tactics, keeps the best paid ones, and mutates them: a family whose
reward can be farmed pays more the longer it is farmed.
"""

from collections.abc import Sequence
from random import Random
from statistics import fmean

from troupe.conformance import texts
from troupe.conformance.adversarial import TACTICS, THOUGHTLESS, Situation
from troupe.conformance.findings import BrokenStepError, clipped, tolerant
from troupe.conformance.play import Move, PlayedEpisode, agent_to_act, chosen, play
from troupe.conformance.subject import Clock, Subject
from troupe.tasks.family import Task

TOLERANCE = 1e-6
POPULATION = 6


def return_bound(subject: Subject) -> None:
    """No sequence of actions in the search earns more than ``return_bound``."""
    clock, rng = subject.share(0.4), Random(subject.limits.seed)
    best: list[tuple[float, list[str], PlayedEpisode]] = []
    count = 0
    for plan in _plans(subject, best, rng, clock):
        task = rng.choice(subject.tasks)
        episode = _played(subject, task, plan, rng)
        count += 1
        best.append((episode.team_return, plan, episode))
        best.sort(key=lambda entry: -entry[0])
        del best[POPULATION:]
        if episode.team_return > subject.family.return_bound + TOLERANCE:
            subject.findings.fail("return_bound", _farmed(episode, plan, subject))
            return
        if subject.is_late("return_bound"):
            break
    top = best[0][0]
    subject.findings.fact(
        "return_bound",
        f"{count} lines of play collected at most {top:g}; the bound is "
        f"{subject.family.return_bound:g}",
    )


def _plans(
    subject: Subject, best: list[tuple[float, list[str], PlayedEpisode]], rng: Random, clock: Clock
):
    """Each tactic alone, then mixtures, then mutations of the best paid."""
    length = subject.limits.max_steps
    for name in TACTICS:
        yield [name] * length
    names = list(TACTICS)
    for _ in range(4):
        yield rng.choices(names, k=length)
    while not clock.is_over:
        plan = list(rng.choice(best)[1]) if rng.random() < 0.7 else rng.choices(names, k=length)
        for _ in range(rng.randint(1, 4)):
            at = rng.randrange(length)
            plan[at : at + rng.randint(1, 6)] = [rng.choice(names)] * rng.randint(1, 6)
        yield (plan + [rng.choice(names)] * length)[:length]


def _played(subject: Subject, task: Task, plan: Sequence[str], rng: Random) -> PlayedEpisode:
    episode = PlayedEpisode(task)
    with tolerant():
        state = subject.env.reset(task)
        only = rng.choice(subject.family.agents) if rng.random() < 0.2 else None
        for number, name in enumerate(plan):
            agent = only or agent_to_act(subject, state, number)
            now = Situation(subject, state, agent, rng, episode.moves)
            try:
                action = TACTICS[name](now)
                done = subject.env.step(state, agent, action)
            except BrokenStepError:
                continue
            episode.moves.append(Move(state, agent, action, done))
            state = done.state
            if done.done:
                break
    return episode


def _farmed(episode: PlayedEpisode, plan: Sequence[str], subject: Subject) -> str:
    paid = [
        f"{plan[i]}: '{move.agent}' {clipped(move.action)[:60]} -> {move.transition.team_reward:g}"
        for i, move in enumerate(episode.moves[:8])
    ]
    return (
        f"{episode.task.id} paid {episode.team_return:g} in {len(episode.moves)} steps; the "
        f"bound is {subject.family.return_bound:g}. It began: {'; '.join(paid)}"
    )


def scripted_beats_random(subject: Subject) -> None:
    """Demonstrations earn more than random actions; otherwise the reward teaches nothing."""
    if subject.skips_without("scripted_beats_random", "demonstrate", "random_action"):
        return
    if not subject.is_scripted:
        subject.findings.skip("scripted_beats_random", "the family says that it has no script")
        return
    scores: dict[str, list[tuple[float, float]]] = {"scripted": [], "random": []}
    policies = {
        "scripted": subject.demonstrate,
        "random": subject.random_action,
    }
    for task in _many(subject):
        if scores["random"] and subject.is_late("scripted_beats_random"):
            break
        for name, policy in policies.items():
            rng = Random(f"{name}/{task.id}")
            episode = play(subject, task, policy, rng, max_steps=subject.episode_steps)
            solved = any(move.transition.success for move in episode.moves)
            scores[name].append((float(solved), episode.team_return))
    (good, good_return), (wild, wild_return) = (
        (fmean(s for s, _ in scores[name]), fmean(r for _, r in scores[name]))
        for name in ("scripted", "random")
    )
    summary = (
        f"scripted solves {good:.0%} and collects {good_return:.3f}; random solves {wild:.0%} and "
        f"collects {wild_return:.3f} ({len(scores['random'])} tasks each)"
    )
    if (good, good_return) <= (wild, wild_return) or good_return < wild_return:
        subject.findings.fail("scripted_beats_random", summary)
    elif good < 1.0:
        subject.findings.warn("scripted_beats_random", summary)
    subject.findings.fact("scripted_beats_random", summary)


def _many(subject: Subject) -> list[Task]:
    """More tasks than for other checks, to average out chance."""
    count = 2 * len(subject.tasks)
    size = subject.taskset.size("train")
    return [
        subject.taskset.task("train", index)
        for index in range(count if size is None else min(size, count))
    ]


def lazy_unpaid(subject: Subject) -> None:
    """Texts that ignore the state earn less than demonstrations, local terms included."""
    if subject.skips_without("lazy_unpaid", "demonstrate"):
        return
    pay: dict[str, list[float]] = {name: [] for name in ("demonstrate", *THOUGHTLESS)}
    for task in subject.tasks:
        if pay["demonstrate"] and subject.is_late("lazy_unpaid"):
            break
        rng = Random(f"lazy/{task.id}")
        with tolerant():
            state = subject.env.reset(task)
            for number in range(len(subject.family.agents)):
                agent = agent_to_act(subject, state, number)
                state = _pay_all(subject, state, agent, rng, pay)
    counted = {name: fmean(paid) for name, paid in pay.items() if paid}
    best = counted.pop("demonstrate", 0.0)
    for name, mean in counted.items():
        if mean > best + TOLERANCE:
            # Without a script a demonstration is a random action, which may be worse.
            record = subject.findings.fail if subject.is_scripted else subject.findings.warn
            record(
                "lazy_unpaid",
                f"'{name}' is paid {mean:.3f} an action on average, a demonstration {best:.3f} "
                "(team reward plus weighted local terms)",
            )
    averages = ", ".join(f"{name} {mean:.3f}" for name, mean in counted.items())
    subject.findings.fact("lazy_unpaid", f"an action pays: demonstrate {best:.3f}, {averages}")


def _pay_all(
    subject: Subject, state: bytes, agent: str, rng: Random, pay: dict[str, list[float]]
) -> bytes:
    """Record every tactic's reward in ``state``; return the state after the demonstration."""
    after = state
    for name, paid in pay.items():
        with tolerant():
            action = TACTICS[name](Situation(subject, state, agent, rng, []))
            done = subject.env.step(state, agent, action)
            weights = subject.family.local_terms.get(agent, {})
            local = sum(weights.get(term, 0.0) * v for term, v in done.local_rewards.items())
            paid.append(done.team_reward + local)
            if name == "demonstrate":
                after = done.state
    return after


def any_text(subject: Subject) -> None:
    """Any text is judged: odd, mutated and huge texts raise nothing."""
    clock, rng, count = subject.share(0.2), Random(subject.limits.seed), 0
    for task in subject.tasks[:2]:
        with tolerant():
            state = subject.env.reset(task)
            for number, agent in enumerate(subject.family.agents):
                count += _every_odd_text(
                    subject, state, agent, rng, with_huge=task == subject.tasks[0]
                )
                agent = agent_to_act(subject, state, number)
                good = chosen(subject, subject.demonstrate, state, agent, rng)
                state = subject.env.step(state, agent, good).state
    while not clock.is_over:
        count += _fuzzed_episode(subject, rng.choice(subject.tasks), rng, clock)
    subject.findings.fact("any_text", f"{count} odd texts judged")


def _every_odd_text(
    subject: Subject, state: bytes, agent: str, rng: Random, *, with_huge: bool
) -> int:
    size = subject.limits.huge_chars
    good = chosen(subject, subject.demonstrate, state, agent, rng)
    tried = [*texts.ODD.values()]
    if with_huge:
        prompt = texts.written(subject.env.observe(state, agent))
        tried += [texts.huge(part, size) for part in ("", good, prompt, "(", "\n", "9")]
        tried += ["A" * size, "[" * size, " " * size, good + " " * size + "x"]
    tried += [good + odd for odd in texts.ODD.values()]
    tried += [texts.noise(rng) for _ in range(10)]
    tried += [texts.mutated(good, [], rng) for _ in range(20)]
    for number, text in enumerate(tried):
        if subject.is_late("any_text"):
            return number
        with tolerant():
            done = subject.env.step(state, agent, text)
            subject.env.observe(done.state, agent)
    return len(tried)


def _fuzzed_episode(subject: Subject, task: Task, rng: Random, clock: Clock) -> int:
    count = 0
    with tolerant():
        state = subject.env.reset(task)
        for number in range(subject.limits.max_steps):
            agent = agent_to_act(subject, state, number)
            good = chosen(subject, subject.demonstrate, state, agent, rng)
            wild = chosen(subject, subject.random_action, state, agent, rng)
            text = rng.choice((texts.mutated(good, [wild], rng), texts.noise(rng), good))
            done = subject.env.step(state, agent, text)
            subject.env.observe(done.state, agent)
            state, count = done.state, count + 1
            if done.done or clock.is_over or subject.is_late("any_text"):
                break
    return count
