"""A small team game whose true contributions can be computed, for ``benchmarks.credit``.

A scout and a worker each say one of three numbers, twice; a rider says numbers that count for
nothing and that nobody sees. Policies are tables: a distribution for each prompt. All values are
exact sums over every course that the game can take, and use nothing of the player.
"""

import json
import math
from functools import cached_property
from itertools import combinations, product
from random import Random
from typing import Literal

from troupe.candidates import Candidate, GenerateRequest, Generation
from troupe.episodes.ports import Outcome, Start
from troupe.ids import prompt_digest
from troupe.tasks.family import Message, Observation

AGENTS = ("scout", "worker", "rider")
TURNS = 2
NUMBERS = 3
DEFAULT = 0
"""What an absent agent says."""

Paid = Literal["outcome", "turns"]
"""The team is paid once, when the outcome is decided, or for each turn."""


class CreditGame:
    """One drawn game and the policies of its agents.

    A course of the game is a list of numbers. Success is decided by what scout and worker said:
    effects of each number, of pairs, and of all together, cut so that a third succeed.
    """

    def __init__(self, seed: int, paid: Paid) -> None:
        rng = Random(f"game/{seed}")
        self.paid: Paid = paid
        self._after_turn = [self._table(rng, 2 * (turn + 1)) for turn in range(TURNS)]
        self._policy_seed = f"policy/{seed}"
        self.policies: dict[str, list[float]] = {}

    def _table(self, rng: Random, length: int) -> dict[tuple[int, ...], float]:
        """1.0 for about a third of all that scout and worker may have said, else 0.0."""
        effects: dict[tuple[int, ...], float] = {}

        def effect(*key: int) -> float:
            return effects.setdefault(key, rng.gauss(0.0, 1.0))

        scores = {
            said: sum(effect(place, number) for place, number in enumerate(said))
            + sum(effect(i, said[i], j, said[j]) for i, j in combinations(range(length), 2))
            + effect(-1, *said)
            for said in product(range(NUMBERS), repeat=length)
        }
        cut = sorted(scores.values())[-len(scores) // 3]
        return {said: float(score >= cut) for said, score in scores.items()}

    def mover(self, numbers: list[int]) -> str:
        """Who acts after ``numbers``."""
        return AGENTS[len(numbers) % len(AGENTS)]

    def is_over(self, numbers: list[int]) -> bool:
        """Whether all have acted in all turns."""
        return len(numbers) == TURNS * len(AGENTS)

    def prompt(self, numbers: list[int]) -> str:
        """What the mover sees: its turn and what scout and worker said."""
        turn = len(numbers) // len(AGENTS)
        return f"{self.mover(numbers)} {turn} after {_heard(numbers)}"

    def policy(self, prompt: str) -> list[float]:
        """Probabilities of the numbers."""
        if prompt not in self.policies:
            rng = Random(f"{self._policy_seed}/{prompt}")
            weights = [math.exp(rng.gauss(0.0, 0.7)) for _ in range(NUMBERS)]
            self.policies[prompt] = [weight / sum(weights) for weight in weights]
        return self.policies[prompt]

    def reward(self, numbers: list[int]) -> float:
        """The team's reward of the last of ``numbers``; only a worker's act is paid."""
        turn, place = divmod(len(numbers) - 1, len(AGENTS))
        if AGENTS[place] != "worker" or (self.paid == "outcome" and turn + 1 < TURNS):
            return 0.0
        return self._after_turn[turn][tuple(_heard(numbers))]

    def value(self, numbers: list[int], present: frozenset[str] = frozenset(AGENTS)) -> float:
        """Expected reward from here on; absent agents say ``DEFAULT``."""
        if self.is_over(numbers):
            return 0.0
        if self.mover(numbers) not in present:
            return self._after(numbers, DEFAULT, present)
        chances = self.policy(self.prompt(numbers))
        return math.fsum(p * self._after(numbers, n, present) for n, p in enumerate(chances))

    def _after(self, numbers: list[int], number: int, present: frozenset[str]) -> float:
        then = [*numbers, number]
        return self.reward(then) + self.value(then, present)

    @cached_property
    def shapley(self) -> dict[str, float]:
        """Each agent's Shapley value in the expected return: the mean over orders of joining."""
        orders = [(a, b, c) for a in AGENTS for b in AGENTS for c in AGENTS if len({a, b, c}) == 3]
        worth = {
            frozenset(team): self.value([], frozenset(team))
            for size in range(len(AGENTS) + 1)
            for team in combinations(AGENTS, size)
        }
        return {
            agent: math.fsum(
                worth[frozenset(order[: order.index(agent) + 1])]
                - worth[frozenset(order[: order.index(agent)])]
                for order in orders
            )
            / len(orders)
            for agent in AGENTS
        }

    @cached_property
    def contributions(self) -> dict[str, list[float]]:
        """Of each prompt and number Q - V: what the act adds to the expected return."""
        found: dict[str, list[float]] = {}
        everyone = frozenset(AGENTS)
        for course in self._courses():
            numbers = list(course)
            if self.prompt(numbers) in found:
                continue
            values = [self._after(numbers, number, everyone) for number in range(NUMBERS)]
            mean = self.value(numbers)
            found[self.prompt(numbers)] = [value - mean for value in values]
        return found

    @cached_property
    def gradient(self) -> dict[str, list[float]]:
        """The gradient of the expected return in the logits of each prompt."""
        reached: dict[str, float] = {}
        for numbers, chance in self._courses().items():
            prompt = self.prompt(list(numbers))
            reached[prompt] = reached.get(prompt, 0.0) + chance
        return {
            prompt: [
                chance * p * q
                for p, q in zip(self.policy(prompt), self.contributions[prompt], strict=True)
            ]
            for prompt, chance in reached.items()
        }

    def _courses(self) -> dict[tuple[int, ...], float]:
        """The chance of every course that is not over."""
        chances: dict[tuple[int, ...], float] = {(): 1.0}
        for numbers in [
            course
            for length in range(TURNS * len(AGENTS) - 1)
            for course in product(range(NUMBERS), repeat=length)
        ]:
            for number, p in enumerate(self.policy(self.prompt(list(numbers)))):
                chances[*numbers, number] = chances[numbers] * p
        return chances


def _heard(numbers: list[int]) -> list[int]:
    return [n for place, n in enumerate(numbers) if AGENTS[place % len(AGENTS)] != "rider"]


class GameEnv:
    """EnvPort of a game. ``judged`` counts the acts."""

    def __init__(self, game: CreditGame) -> None:
        self._game, self.judged = game, 0

    async def reset(self, *, split: str, index: int, observe: object, timeout_s: float) -> Start:
        return Start(f"credit/{split}/{index}", b"[]", self._views([]))

    async def step(
        self, *, state: bytes, agent: str, actions: list[str], observe: object, timeout_s: float
    ) -> list[Outcome]:
        self.judged += len(actions)
        return [self._outcome([*json.loads(state), int(text)]) for text in actions]

    def _outcome(self, numbers: list[int]) -> Outcome:
        reward, done = self._game.reward(numbers), self._game.is_over(numbers)
        state = json.dumps(numbers).encode()
        return Outcome(state, reward, {}, done, done, "{}", self._views(numbers))

    def _views(self, numbers: list[int]) -> dict[str, Observation]:
        seen: dict[str, Observation] = dict.fromkeys(AGENTS, ())
        if not self._game.is_over(numbers):
            seen[self._game.mover(numbers)] = (Message("user", self._game.prompt(numbers)),)
        return seen


class Tables:
    """RolloutPort of the policies. ``calls`` counts what was drawn."""

    def __init__(self, game: CreditGame) -> None:
        self._game, self.calls = game, 0

    async def generate(
        self, request: GenerateRequest[Observation], *, timeout_s: float
    ) -> Generation:
        prompt = request.prompt[0].content
        chances = self._game.policy(prompt)
        ids = list(prompt.encode())
        drawn: list[Candidate] = []
        for place in range(request.num_candidates):
            rng = Random(f"{request.seed}/{place}")
            number = rng.choices(range(NUMBERS), weights=chances)[0]
            logprob = math.log(chances[number])
            drawn.append(Candidate([number], [logprob], str(number), "stop"))
        self.calls += len(drawn)
        return Generation(ids, prompt_digest(ids), drawn, request.policy_version, 0.0)
