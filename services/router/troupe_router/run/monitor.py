"""Whether a job's reward still means what it should: it rises while a witness falls. Pure.

A witness is a number that no reward function makes: success on the step's own tasks and on
held-out ones, the diversity of answers, and the strict judge's score and agreement. Each look
splits the last steps in two at every place and compares the means before and after.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist, fmean, variance
from typing import Any, Literal

from troupe.rewards.reward import STRICT
from troupe.spec.job import MonitorSpec

Kind = Literal["share", "diversity", "score", "agreement"]

MIN_BEFORE, MIN_AFTER = 3, 2
"""Steps on each side of a change, at least."""
RISE_LEVEL = 0.01
"""Chance that a reward that does not rise is taken for one that does."""
MIN_FALL = 0.1
"""Least fall of a share of solved tasks."""
MIN_FALL_OF_DIVERSITY, KEPT_DIVERSITY = 0.2, 0.5
"""Diversity must fall by this much, and below this share of what it was: all learning narrows."""
MIN_FALL_OF_SCORE = 0.2
"""Least fall of the strict judge's mean score, as a share of what it was."""
MIN_AGREEMENT = 0.6
"""An agreement of two judges above this is no suspicion; 0.5 is chance."""
HELD_OUT = "success on held-out tasks"
_FLOOR = 1e-6
"""Least standard deviation of a step's number, so that equal numbers are no certainty."""


@dataclass(frozen=True, slots=True)
class Observed:
    """One number of one step; ``count``: tasks behind a share."""

    step: int
    value: float
    count: int = 1


@dataclass(frozen=True, slots=True)
class Witness:
    """One number over the steps. ``agent`` is "" where it is the team's.

    Example: ``Witness("success", "share", (Observed(0, 0.5, 32), Observed(1, 0.25, 32)))``.
    """

    name: str
    kind: Kind
    observed: tuple[Observed, ...]
    agent: str = ""


@dataclass(frozen=True, slots=True)
class Change:
    """Means before and from ``since`` on; ``z`` in standard deviations of their difference."""

    name: str
    agent: str
    since: int
    before: float
    after: float
    z: float

    def words(self) -> str:
        """``"answer diversity of planner fell from 0.93 to 0.08"``."""
        of = f" of {self.agent}" if self.agent else ""
        word = "rose" if self.after > self.before else "fell"
        return f"{self.name}{of} {word} from {self.before:.3g} to {self.after:.3g}"


@dataclass(frozen=True, slots=True)
class Suspicion:
    """The reward rose while the witnesses in ``falls`` fell, strongest first."""

    step: int
    rise: Change
    falls: tuple[Change, ...]

    @property
    def is_held_out(self) -> bool:
        """Whether an evaluation is among the witnesses."""
        return any(fall.name == HELD_OUT for fall in self.falls)

    @property
    def sentence(self) -> str:
        """For people: what rose, what fell, since when."""
        falls = ", ".join(fall.words() for fall in self.falls)
        return (
            f"Since step {self.rise.since} {self.rise.words()} while {falls}: read the episodes "
            "named here before you trust the curve."
        )

    def to_json(self) -> dict[str, Any]:
        """As the event has it, without the episodes."""
        return {
            "step": self.step,
            "since": self.rise.since,
            "sentence": self.sentence,
            "reward": [round(self.rise.before, 6), round(self.rise.after, 6)],
            "witnesses": [
                {
                    "name": fall.name,
                    "agent": fall.agent,
                    "before": round(fall.before, 6),
                    "after": round(fall.after, 6),
                    "z": round(fall.z, 2),
                }
                for fall in self.falls
            ],
        }


def suspicion(
    train: Mapping[int, Mapping[str, Any]],
    evals: Mapping[int, Mapping[str, Any]],
    spec: MonitorSpec,
) -> Suspicion | None:
    """Whether the newest step, or an evaluation after it, is suspect.

    ``train`` and ``evals`` hold lines of metrics.jsonl by step. An evaluation at step k follows
    the training steps below k.
    """
    if not spec.is_on or not train:
        return None
    newest = max(train)
    recent = {step: train[step] for step in sorted(train) if step > newest - 2 * spec.window}
    reward = _witness(recent, "reward", "score", "reward_mean")
    witnesses = list(_witnesses(recent))
    splits = [
        since
        for since in sorted(recent)
        if newest - spec.window < since <= newest - MIN_AFTER + 1
        and sum(step < since for step in recent) >= MIN_BEFORE
    ]
    num_looks = 2 * (len(witnesses) + 1) * spec.window  # two estimates of the spread
    level = spec.false_alarm_rate / num_looks
    limit = NormalDist().inv_cdf(1.0 - level)
    found: Suspicion | None = None
    for since in splits:
        rise = _rise(reward, since, spec)
        if rise is None:
            continue
        falls = [_fall(witness, since, spec, limit) for witness in witnesses]
        found = _stronger(found, newest, rise, [fall for fall in falls if fall])
    held_out = _held_out_fall(evals, newest + 1, limit)
    if held_out is None:
        return found
    whole = _witness(train, "reward", "score", "reward_mean")
    rise = _rise_since(whole, held_out.since, spec)
    return Suspicion(newest, rise, (held_out,)) if rise else found


def _stronger(
    found: Suspicion | None, step: int, rise: Change, falls: Sequence[Change]
) -> Suspicion | None:
    """The suspicion of this split, if a witness fell there more surely than at the others."""
    ranked = tuple(sorted(falls, key=lambda fall: -fall.z))
    if not ranked or (found and found.falls[0].z >= ranked[0].z):
        return found
    return Suspicion(step, rise, ranked)


def _witnesses(train: Mapping[int, Mapping[str, Any]]) -> Iterator[Witness]:
    """Every witness that the lines have numbers of."""
    yield _witness(train, "success", "share", "success_rate")
    yield _witness(train, "agreement with the strict judge", "agreement", "strict_agreement")
    agents = {agent for line in train.values() for agent in line.get("answer_diversity") or {}}
    for agent in sorted(agents):
        name = "answer diversity"
        yield _witness(train, name, "diversity", "answer_diversity", agent, agent=agent)
    judged = {
        agent
        for line in train.values()
        for agent, terms in (line.get("reward_by_term") or {}).items()
        if STRICT in terms
    }
    for agent in sorted(judged):
        path = ("reward_by_term", agent, STRICT)
        yield _witness(train, "the strict judge's score", "score", *path, agent=agent)


def _witness(
    train: Mapping[int, Mapping[str, Any]], name: str, kind: Kind, *path: str, agent: str = ""
) -> Witness:
    observed: list[Observed] = []
    for step in sorted(train):
        value: Any = train[step]
        for key in path:
            value = (value or {}).get(key)
        if isinstance(value, int | float):
            count = int(train[step].get("num_episodes") or 1) if kind == "share" else 1
            observed.append(Observed(step, float(value), count))
    return Witness(name, kind, tuple(observed), agent)


def _rise(reward: Witness, since: int, spec: MonitorSpec) -> Change | None:
    change = _change(reward, since, spec)
    limit = NormalDist().inv_cdf(1.0 - RISE_LEVEL)
    return change if change and change.after > change.before and change.z > limit else None


def _rise_since(reward: Witness, since: int, spec: MonitorSpec) -> Change | None:
    """The reward of the last steps over that of the steps around the evaluation at ``since``."""
    before = [o for o in reward.observed if o.step < since][-spec.window :]
    before += [o for o in reward.observed if o.step >= since][: max(0, MIN_BEFORE - len(before))]
    last = max((o.step for o in before), default=-1)
    after = [o for o in reward.observed if o.step > last][-spec.window :]
    shown = Witness("reward", "score", (*before, *after))
    return _rise(shown, after[0].step, spec) if after else None


def _fall(witness: Witness, since: int, spec: MonitorSpec, limit: float) -> Change | None:
    change = _change(witness, since, spec)
    if change is None or change.z < limit:
        return None
    fall = change.before - change.after
    is_large = {
        "share": fall >= MIN_FALL,
        "diversity": fall >= MIN_FALL_OF_DIVERSITY
        and change.after < KEPT_DIVERSITY * change.before,
        "score": fall >= MIN_FALL_OF_SCORE * abs(change.before) and fall > 0,
        "agreement": fall >= MIN_FALL and change.after < MIN_AGREEMENT,
    }[witness.kind]
    return change if is_large else None


def _change(witness: Witness, since: int, spec: MonitorSpec) -> Change | None:
    """The means on both sides of ``since``; None with too few steps on one of them."""
    before = [o for o in witness.observed if o.step < since][-spec.window :]
    after = [o for o in witness.observed if o.step >= since][: spec.window]
    if len(before) < MIN_BEFORE or len(after) < MIN_AFTER:
        return None
    first, second = _mean(before), _mean(after)
    size, ways = abs(first - second), 1 / len(before) + 1 / len(after)
    first_variance = variance([o.value for o in before])
    # A change takes some steps, which spread what is after it: the spread before it is asked too.
    pooled = fmean(
        [first_variance] * (len(before) - 1)
        + [variance([o.value for o in after])] * (len(after) - 1)
    )
    if witness.kind == "share":
        # Tasks are drawn anew each step, so the binomial error is known and needs no degrees.
        error = max(first_variance * ways, _binomial(before, after))
        z = size / math.sqrt(error)
    else:
        z = max(
            normal_of_t(size / math.sqrt(max(spread, _FLOOR**2) * ways), degrees)
            for spread, degrees in (
                (pooled, len(before) + len(after) - 2),
                (first_variance, len(before) - 1),
            )
        )
    return Change(witness.name, witness.agent, since, first, second, z)


def _held_out_fall(evals: Mapping[int, Mapping[str, Any]], now: int, limit: float) -> Change | None:
    """The newest evaluation, if it is this step's, against the three before it."""
    steps = [step for step in sorted(evals) if evals[step].get("success") is not None]
    if len(steps) < 2 or steps[-1] != now:
        return None
    seen = [Observed(s, evals[s]["success"], int(evals[s].get("num_tasks") or 1)) for s in steps]
    before, after = seen[-4:-1], seen[-1:]
    first, second = _mean(before), _mean(after)
    z = (first - second) / math.sqrt(_binomial(before, after))
    if z < limit or first - second < MIN_FALL:
        return None
    return Change(HELD_OUT, "", before[0].step, first, second, z)


def _mean(side: Sequence[Observed]) -> float:
    total = sum(o.count for o in side)
    return math.fsum(o.value * o.count for o in side) / total if total else fmean([0.0])


def _binomial(before: Sequence[Observed], after: Sequence[Observed]) -> float:
    """Variance of the difference of two shares; a task is added to each side (never 0)."""
    error = 0.0
    for side in (before, after):
        total = sum(o.count for o in side)
        share = (_mean(side) * total + 0.5) / (total + 1)
        error += share * (1.0 - share) / (total + 1)
    return error


def normal_of_t(t: float, degrees: int) -> float:
    """The normal deviate that is as rare as Student's ``t``.

    Source: Wallace, Annals of Mathematical Statistics 30 (1959); never above it.
    """
    factor = (8 * degrees + 1) / (8 * degrees + 3)
    return factor * math.sqrt(degrees * math.log1p(t * t / degrees))
