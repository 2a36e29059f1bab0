"""Searches that improve an attacker by the reward alone, with a budget of judged episodes.

``constants`` seeks one text per agent that is paid on every task: what a policy collapses to.
``salads`` seeks, for each task, words in any order that the reward takes for prose.
"""

from collections.abc import Callable, Mapping
from random import Random

from troupe.conformance import texts
from troupe.conformance.adversarial import Situation
from troupe.conformance.attacks.answers import CONNECTIVES, CONSTANTS, FILLER, GLUE, TEXT_ATTACKERS
from troupe.conformance.attacks.attacker import Attacker

Texts = Mapping[str, str]
"""What each agent writes, whatever it sees."""
Score = Callable[[Texts], float]
"""The reward of an episode, or of several, in which the agents write these texts."""

_SEEDS = 0.3
"""Share of a budget for starting points."""


def written_by(name: str, what: str, best: Texts) -> Attacker:
    """The attacker that writes ``best``."""
    return Attacker(name, what, lambda now: best.get(now.agent, ""))


def constants(now: Mapping[str, Situation], score: Score, budget: int, rng: Random) -> Texts:
    """The best paid constant texts among ``budget``. ``now``: a first situation of each agent."""

    def drawn() -> dict[str, str]:
        kind = rng.random()
        if kind < 0.6:
            return {agent: situation.wild for agent, situation in now.items()}
        return {agent: rng.choice(CONSTANTS) for agent in now}

    def mutated(best: Texts) -> dict[str, str]:
        agent = rng.choice(list(best))
        others = [now[agent].wild, rng.choice(CONSTANTS)]
        return {**best, agent: texts.mutated(best[agent], others, rng)}

    return _climbed(drawn, mutated, score, budget)


def salads(now: Mapping[str, Situation], score: Score, budget: int, rng: Random) -> Texts:
    """The best paid salads of one task's words among ``budget``."""
    starts = [a for a in TEXT_ATTACKERS if "salad" in a.name or "filler_pair" in a.name]
    pool = [word for situation in now.values() for word in situation.shown.split()]
    pool += [*FILLER, *GLUE, *CONNECTIVES.split()]

    def drawn() -> dict[str, str]:
        start = rng.choice(starts)
        return {agent: start.act(situation) for agent, situation in now.items()}

    def mutated(best: Texts) -> dict[str, str]:
        agent = rng.choice(list(best))
        return {**best, agent: " ".join(_shaken(best[agent].split() or ["?"], pool, rng))}

    return _climbed(drawn, mutated, score, budget)


def _climbed(
    drawn: Callable[[], dict[str, str]],
    mutated: Callable[[Texts], dict[str, str]],
    score: Score,
    budget: int,
) -> Texts:
    """The best of ``budget`` candidates: first independent ones, then changes that are no worse."""
    best, paid = drawn(), float("-inf")
    for number in range(max(budget, 1)):
        candidate = drawn() if number <= _SEEDS * budget else mutated(best)
        reward = score(candidate)
        if reward >= paid:
            best, paid = candidate, reward
    return best


def _shaken(words: list[str], pool: list[str], rng: Random) -> list[str]:
    """``words`` after one to four changes: a word replaced, put in, taken out, or two swapped."""
    for _ in range(rng.randint(1, 4)):
        at, other = rng.randrange(len(words)), rng.randrange(len(words))
        change = rng.randrange(4)
        if change == 0:
            words[at] = rng.choice(pool)
        elif change == 1:
            words.insert(at, rng.choice(pool))
        elif change == 2 and len(words) > 1:
            del words[at]
        else:
            words[at], words[other % len(words)] = words[other % len(words)], words[at]
    return words
