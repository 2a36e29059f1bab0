"""Simulated runs for the reward monitor: a policy of several habits whose shares change by step.

Episodes are the records that a router gets; everything after them is the router's own code.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any

from troupe.api.records.v1 import records_pb2 as pb
from troupe.spec.job import MonitorSpec
from troupe_router.run.monitor import Suspicion, suspicion
from troupe_router.run.round_metrics import eval_line, play_metrics

NUM_TASKS, GROUP = 16, 4


@dataclass(frozen=True)
class Answer:
    """What a habit writes for one task, and what the judges say."""

    text: str
    reward: float
    is_success: bool
    strict: float


Habit = Callable[[int, Random], Answer]


@dataclass(frozen=True)
class Run:
    """Shares of habits by step; ``held_out`` are those on tasks that are not trained on."""

    habits: Mapping[str, Habit]
    shares: Callable[[int], Mapping[str, float]]
    held_out: Callable[[int], Mapping[str, float]] | None = None
    eval_every: int = 5
    has_strict: bool = True
    steps: int = 24
    num_eval: int = 60
    num_tasks: int = NUM_TASKS
    fields: dict[str, Any] = field(default_factory=dict[str, Any])


def episodes(run: Run, step: int, rng: Random, *, is_eval: bool = False) -> list[pb.Episode]:
    """The records of one round."""
    shares = (run.held_out or run.shares)(step) if is_eval else run.shares(step)
    count, size = (run.num_eval, 1) if is_eval else (run.num_tasks, GROUP)
    return [_episode(run, f"{step}/{n}", shares, size, rng) for n in range(count)]


def _episode(
    run: Run, name: str, shares: Mapping[str, float], size: int, rng: Random
) -> pb.Episode:
    secret = rng.randrange(10**6)
    drawn = rng.choices(list(shares), list(shares.values()), k=size)
    answers = [run.habits[habit](secret, rng) for habit in drawn]
    candidates = [
        pb.Candidate(
            index=i,
            text=answer.text,
            reward=answer.reward + rng.gauss(0.0, 0.05),
            prompt_digest=name,
            is_chosen=i == 0,
            is_success=answer.is_success,
            local_rewards={"strict": answer.strict} if run.has_strict else {},
        )
        for i, answer in enumerate(answers)
    ]
    group = pb.Group(agent="writer", candidates=candidates, group_id=name)
    return pb.Episode(
        episode_id=name,
        task_id=f"train/{secret}",
        is_success=answers[0].is_success,
        success_fraction=float(answers[0].is_success),
        groups=[group],
        num_turns=1,
    )


def alarms(run: Run, seed: int, spec: MonitorSpec | None = None) -> list[tuple[int, Suspicion]]:
    """Every (step, suspicion) of a run, in order."""
    rng, spec = Random(seed), spec or MonitorSpec()
    train: dict[int, Mapping[str, Any]] = {}
    evals: dict[int, Mapping[str, Any]] = {}
    raised: list[tuple[int, Suspicion]] = []
    for step in range(run.steps):
        if step % run.eval_every == 0:
            play = play_metrics(episodes(run, step, rng, is_eval=True), 1.0)
            evals[step] = eval_line(step, play)
            if step and (suspect := suspicion(train, evals, spec)) and suspect.is_held_out:
                raised.append((step, suspect))
        train[step] = play_metrics(episodes(run, step, rng), 1.0).to_line()
        if suspect := suspicion(train, evals, spec):
            raised.append((step, suspect))
    return raised


def good(secret: int, rng: Random) -> Answer:
    """The right answer, of which each task has another."""
    return Answer(f"answer {secret}", 1.0, True, 1.0)


def wrong(secret: int, rng: Random) -> Answer:
    """One of a few wrong answers."""
    return Answer(f"answer {rng.randrange(20)}", 0.2, False, 0.2)


def garbage(secret: int, rng: Random) -> Answer:
    """What an untrained policy writes: never the same twice."""
    return Answer(f"{rng.random()} {rng.random()}", 0.0, False, 0.0)


def one_of(count: int) -> Habit:
    """The right answer where there are only ``count`` of them."""
    return lambda secret, rng: Answer(f"move {secret % count}", 1.0, True, 1.0)


def rising(begin: float, step: int, middle: float = 15.0, width: float = 5.0) -> float:
    """A share that learning moves from ``begin`` to 0.95."""
    return begin + (0.95 - begin) / (1 + math.exp((middle - step) / width))


def taken_over(step: int, onset: int, length: float = 3.0) -> float:
    """The share of a habit that begins at ``onset`` and takes the policy over."""
    return 0.0 if step < onset else 1.0 - math.exp(-(step - onset + 1) / length)
