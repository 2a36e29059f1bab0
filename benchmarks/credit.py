"""How well algorithms credit acts and agents, where the true contributions are known.

Run: ``python -m benchmarks.credit [--quick] [--out FILE]``. Plays drawn games of
``benchmarks.credit_game`` with the real player, samplers and advantages; policies are tables, so no
model and no learning is involved. Every arm gets the same number of draws for a task: its group
size is the largest whose mean draws are within ``BUDGET``. All arms leave out the division by a
standard deviation, so that a game's groups weigh equally.

Of each arm, over the draws of a game, then over games with a bootstrap interval over games:

- ``one``: cosine between the policy gradient of one task's draws and the exact gradient of the
  team's return; ``mean``: the same of the mean gradient of all draws, which shows bias.
- ``acts``: correlation of an act's advantage with what it adds to the expected return (Q - V).
- ``rider``: the length of the gradient of the agent that changes nothing (its true one is 0), as a
  share of the whole, both as root mean squares.

A second table compares estimates of the agents' Shapley values with the exact ones, at equal
draws. The last line is one JSON object; exits 0 whatever it shows.
"""

import argparse
import asyncio
import json
import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from benchmarks.credit_game import (
    AGENTS,
    DEFAULT,
    NUMBERS,
    TURNS,
    CreditGame,
    GameEnv,
    Paid,
    Tables,
)
from benchmarks.report import commit, goal, machine
from troupe.algorithms.algorithm import Algorithm, advantages_of_step
from troupe.algorithms.load import load_algorithm
from troupe.api.records.v1 import records_pb2 as pb
from troupe.candidates import group_outcome
from troupe.episodes.player import EpisodePlayer, Played
from troupe.rewards.mix import RewardMix
from troupe.samplers.coalition import Coalition, CoalitionParams, CoalitionSampler
from troupe.samplers.sampler import Sampler
from troupe.spec import parse_spec
from troupe.spec.job import JobSpec
from troupe.workflows.self_play import SelfPlay

BUDGET = 96
"""Draws for one task."""

CALIBRATION = 8
"""Tasks over which the draws of a group size are averaged."""

ABSENT = {"default_action": str(DEFAULT)}

Gradient = dict[str, list[float]]


@dataclass(frozen=True)
class Arm:
    """An algorithm, and its settings for a size m."""

    name: str
    settings: Callable[[int], dict[str, Any]]


def _plain(kind: str, **params: Any) -> Callable[[int], dict[str, Any]]:
    return lambda size: {"kind": kind, "group_size": size, "params": params}


def _trees(size: int, **params: Any) -> dict[str, Any]:
    """Trees of three leaves, as in the paper's scripts."""
    return {"kind": "tree_grpo", "group_size": 3 * size, "params": {"trees": size, **params}}


def _followed(size: int) -> dict[str, Any]:
    follow = {"executions": 1, "goes_on": "random"}
    return {"kind": "follow", "group_size": size, "follow": follow}


ARMS = (
    Arm("grpo", _plain("grpo")),
    Arm("turn_grpo", _plain("turn_grpo")),
    Arm("gigpo", _plain("gigpo")),
    Arm("gagpo", _plain("gagpo")),
    Arm("at_grpo", _plain("at_grpo")),
    Arm("at_grpo, random candidate", _plain("at_grpo", advance="random")),
    Arm("follow, M = 1, random candidate", _followed),
    Arm("tree_grpo", _trees),
    Arm("tree_grpo, uncertain", partial(_trees, expand="uncertain")),
    Arm("ccpo", _plain("ccpo", **ABSENT)),
    Arm("ccpo, difference alone", _plain("ccpo", team_weight=0.0, credit_weight=1.0, **ABSENT)),
    Arm("ccpo, others repeat", _plain("ccpo", others="repeat", **ABSENT)),
    Arm("shapley", _plain("shapley", **ABSENT)),
    Arm("shapley, others repeat", _plain("shapley", others="repeat", **ABSENT)),
)


def _job(algorithm: dict[str, Any]) -> JobSpec:
    return parse_spec(
        {
            "name": "credit",
            "steps": 1,
            "task": {"name": "credit_game"},
            "workflow": {"kind": "self_play", "order": list(AGENTS), "max_turns": TURNS},
            "agents": {agent: {"policy": "p"} for agent in AGENTS},
            "policies": {"p": {"model": "tables"}},
            "algorithm": {"scale": "none", **algorithm},
        }
    )


@dataclass
class Table:
    """One game at which an algorithm, or a sampler alone, plays tasks."""

    game: CreditGame
    spec: JobSpec
    algorithm: Algorithm
    sampler: Sampler
    num_draws: list[int] = field(default_factory=list)
    num_judged: list[int] = field(default_factory=list)

    @classmethod
    def of(cls, game: CreditGame, settings: dict[str, Any]) -> "Table":
        """The table of an arm."""
        spec = _job(settings)
        algorithm = load_algorithm(spec.algorithm)
        return cls(game, spec, algorithm, algorithm.sampler())

    async def play(self, number: int) -> Played:
        """One task; its draws depend on ``number`` alone."""
        rollout, env = Tables(self.game), GameEnv(self.game)
        player = EpisodePlayer(
            self.spec,
            workflow=SelfPlay(self.spec.workflow),
            sampler=self.sampler,
            mix=RewardMix(self.spec.reward, {agent: {} for agent in AGENTS}),
            rollout=rollout,
            env=env,
        )
        ticket = pb.Ticket(
            ticket_id=f"credit/{number}",
            job_id="credit",
            round_id=f"train-{number:05}",
            kind=pb.ROUND_KIND_TRAIN,
            split="train",
            policy_versions={"p": 0},
        )
        played = await player.play(ticket)
        self.num_draws.append(rollout.calls)
        self.num_judged.append(env.judged)
        return played

    async def acts(self, number: int) -> list[tuple[str, int, float]]:
        """Prompt, number and advantage of every trained act of one task."""
        groups = (await self.play(number)).groups
        advantages = advantages_of_step(self.algorithm, [group_outcome(g) for g in groups])
        found: list[tuple[str, int, float]] = []
        for group, values in zip(groups, advantages, strict=True):
            prompts = {p.digest: bytes(p.token_ids).decode() for p in group.prompts}
            for act, value in zip(group.candidates, values, strict=True):
                found.append((prompts[act.prompt_digest], act.token_ids[0], value))
        return found


async def largest(games: Sequence[CreditGame], arm: Arm, budget: int) -> int:
    """The largest size whose mean draws are within the budget."""
    size = max(2, int(2 * budget / await _mean_draws(games, arm, 2)))
    while size > 2 and await _mean_draws(games, arm, size) > budget:
        size -= 1
    while await _mean_draws(games, arm, size + 1) <= budget:
        size += 1
    return size


async def _mean_draws(games: Sequence[CreditGame], arm: Arm, size: int) -> float:
    draws: list[int] = []
    for place in range(CALIBRATION):
        table = Table.of(games[place % len(games)], arm.settings(size))
        await table.play(90_000 + place)
        draws += table.num_draws
    return statistics.mean(draws)


def gradient_of(game: CreditGame, acts: Sequence[tuple[str, int, float]]) -> Gradient:
    """Sum over acts of advantage * gradient of log pi, in logits; divided by the acts."""
    total: defaultdict[str, list[float]] = defaultdict(lambda: [0.0] * NUMBERS)
    for prompt, number, advantage in acts:
        for other, chance in enumerate(game.policy(prompt)):
            total[prompt][other] += advantage * ((other == number) - chance) / len(acts)
    return dict(total)


def dot(one: Gradient, two: Gradient) -> float:
    """The inner product; a prompt that is missing counts 0."""
    return math.fsum(
        a * b
        for prompt in one.keys() & two.keys()
        for a, b in zip(one[prompt], two[prompt], strict=True)
    )


def cosine(one: Gradient, two: Gradient) -> float:
    """0 where one of them is 0."""
    length = math.sqrt(dot(one, one) * dot(two, two))
    return dot(one, two) / length if length else 0.0


def correlation(pairs: Sequence[tuple[float, float]]) -> float:
    """Pearson's; 0 where one side is constant."""
    one, two = zip(*pairs, strict=True)
    if min(one) == max(one) or min(two) == max(two):
        return 0.0
    return statistics.correlation(one, two)


async def judge(game: CreditGame, arm: Arm, size: int, tasks: int) -> dict[str, float]:
    """The figures of one arm in one game."""
    table = Table.of(game, arm.settings(size))
    pairs: list[tuple[float, float]] = []
    cosines: list[float] = []
    mean: defaultdict[str, list[float]] = defaultdict(lambda: [0.0] * NUMBERS)
    whole = of_rider = 0.0
    for number in range(tasks):
        acts = await table.acts(number)
        pairs += [(value, game.contributions[prompt][said]) for prompt, said, value in acts]
        found = gradient_of(game, acts)
        cosines.append(cosine(found, game.gradient))
        for prompt, values in found.items():
            mean[prompt] = [a + b / tasks for a, b in zip(mean[prompt], values, strict=True)]
        whole += dot(found, found)
        riders = {p: v for p, v in found.items() if p.startswith("rider")}
        of_rider += dot(riders, riders)
    return {
        "one": statistics.mean(cosines),
        "mean": cosine(dict(mean), game.gradient),
        "acts": correlation(pairs),
        "rider": math.sqrt(of_rider / whole) if whole else 0.0,
        "draws": statistics.mean(table.num_draws),
        "judged": statistics.mean(table.num_judged),
    }


class OneOrder(CoalitionSampler):
    """Shapley's value estimated by one random order of joining for each episode."""

    def __init__(self, rng: Random) -> None:
        super().__init__(1, "shapley", CoalitionParams(**ABSENT))
        self._rng = rng
        self._order: list[str] = []

    def coalitions(self, agents: Sequence[str]) -> list[Coalition]:
        self._order = self._rng.sample(list(agents), len(agents))
        return [Coalition(self._order[:size]) for size in range(len(agents))]

    def credit(self, agents: Sequence[str], values: Any) -> dict[str, float]:
        teams = [Coalition(self._order[:size]) for size in range(len(agents) + 1)]
        steps = zip(self._order, teams, teams[1:], strict=False)
        return {agent: values[after] - values[before] for agent, before, after in steps}


ESTIMATES: dict[str, Callable[[Random], CoalitionSampler]] = {
    "all orders (`shapley`)": lambda rng: CoalitionSampler(1, "shapley", CoalitionParams(**ABSENT)),
    "one random order an episode": OneOrder,
    "return without the agent (`ccpo`)": lambda rng: CoalitionSampler(
        1, "counterfactual", CoalitionParams(**ABSENT)
    ),
}


async def shares(game: CreditGame, name: str, budget: int, repeats: int) -> dict[str, float]:
    """Root mean square error of the agents' values, played until the draws are used up."""
    errors: list[float] = []
    riders: list[float] = []
    for repeat in range(repeats):
        sampler = ESTIMATES[name](Random(f"{name}/{repeat}"))
        spec = _job({"kind": "grpo", "group_size": 2})
        table = Table(game, spec, load_algorithm(spec.algorithm), sampler)
        total, episodes = dict.fromkeys(AGENTS, 0.0), 0
        while sum(table.num_draws) < budget:
            played = await table.play(repeat * 1000 + episodes)
            episodes += 1
            for group in played.groups:
                total[group.agent] += group.candidates[0].reward
        for agent in AGENTS:
            error = (total[agent] / episodes - game.shapley[agent]) ** 2
            (riders if agent == "rider" else errors).append(error)
    return {
        "error": math.sqrt(statistics.mean(errors)),
        "rider": math.sqrt(statistics.mean(riders)),
    }


def interval(values: Sequence[float]) -> dict[str, float]:
    """Mean, and the 95 % percentile bootstrap over games."""
    rng = Random(0)
    means = sorted(statistics.mean(rng.choices(values, k=len(values))) for _ in range(2000))
    return {
        "mean": round(statistics.mean(values), 4),
        "low": round(means[49], 4),
        "high": round(means[1949], 4),
    }


async def measure(
    sizes: Mapping[str, int], *, games: int, tasks: int, paid: Paid
) -> dict[str, dict[str, Any]]:
    """Of each arm its figures over the games."""
    drawn = [CreditGame(seed, paid) for seed in range(games)]
    results: dict[str, dict[str, Any]] = {}
    for arm in ARMS:
        size = sizes[arm.name]
        figures = [await judge(game, arm, size, tasks) for game in drawn]
        results[arm.name] = {
            "group_size": arm.settings(size)["group_size"],
            **{key: interval([f[key] for f in figures]) for key in figures[0]},
        }
        print(paid, arm.name, json.dumps(results[arm.name]), flush=True)
    return results


async def run(*, games: int, tasks: int) -> dict[str, Any]:
    """Both tables."""
    drawn = [CreditGame(seed, "outcome") for seed in range(games)]
    sizes = {arm.name: await largest(drawn, arm, BUDGET) for arm in ARMS}
    paid: tuple[Paid, ...] = ("outcome", "turns")
    arms = {how: await measure(sizes, games=games, tasks=tasks, paid=how) for how in paid}
    estimates: dict[str, Any] = {}
    for budget in (BUDGET, 4 * BUDGET):
        for name in ESTIMATES:
            figures = [await shares(game, name, budget, max(2, tasks // 4)) for game in drawn]
            estimates[f"{name}, {budget} draws"] = {
                key: interval([f[key] for f in figures]) for key in figures[0]
            }
    grpo, shapley = arms["outcome"]["grpo"], arms["outcome"]["shapley"]
    share = shapley["rider"]["mean"] / grpo["rider"]["mean"]
    exact, one = (estimates[f"{name}, {4 * BUDGET} draws"] for name in list(ESTIMATES)[:2])
    ratio = exact["error"]["mean"] / one["error"]["mean"]
    return {
        "arms": arms,
        "estimates": estimates,
        "goals": [
            goal("rider's gradient under shapley over grpo's", round(share, 4), 0.5, share <= 0.5),
            goal("error of all orders over one order's", round(ratio, 3), 1.0, ratio <= 1.0),
        ],
    }


def main() -> None:
    """Print the tables' figures and one JSON line."""
    parser = argparse.ArgumentParser(description="Credit of acts and agents against the truth.")
    parser.add_argument("--quick", action="store_true", help="2 games of 4 tasks")
    parser.add_argument("--out", type=Path, help="also write the JSON line here")
    args = parser.parse_args()
    size = {"games": 2, "tasks": 4} if args.quick else {"games": 12, "tasks": 24}
    found = asyncio.run(run(**size))
    header = {"benchmark": "credit", "commit": commit(), "machine": machine(), **size}
    line = json.dumps({**header, "budget": BUDGET, **found})
    if args.out:
        args.out.write_text(line + "\n", "utf-8")
    print(line)


if __name__ == "__main__":
    main()
