"""Whether a job's reward still means what it should: it rises while a witness falls. Pure.

A witness is a number that no reward function makes: success on the step's own tasks and on
held-out ones, the diversity of answers, and the strict judge's score and agreement. Each look
splits the last steps in two at every place and compares the means before and after.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist, fmean
from typing import Any, Literal

from troupe.ids import counted
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
class StepValue:
    """One number of one step; ``count``: tasks behind a share."""

    step: int
    value: float
    count: int = 1


@dataclass(frozen=True, slots=True)
class Witness:
    """One number over the steps. ``agent`` is "" where it is the team's.

    Example: ``Witness("success", "share", (StepValue(0, 0.5, 32), StepValue(1, 0.25, 32)))``.
    """

    name: str
    kind: Kind
    observed: tuple[StepValue, ...]
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
            f"Since step {counted(self.rise.since)} {self.rise.words()} while {falls}: read the "
            "episodes named here before you trust the curve."
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
    # Two spreads and two ends of what is after the change, for each witness and place.
    num_looks = 4 * (len(witnesses) + 1) * spec.window
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
    rise = _rise_between(whole, sorted(evals)[-4:], spec)
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
    observed: list[StepValue] = []
    for step in sorted(train):
        value: Any = train[step]
        for key in path:
            value = (value or {}).get(key)
        if isinstance(value, int | float):
            count = int(train[step].get("num_episodes") or 1) if kind == "share" else 1
            observed.append(StepValue(step, float(value), count))
    return Witness(name, kind, tuple(observed), agent)


def _rise(reward: Witness, since: int, spec: MonitorSpec) -> Change | None:
    limit = NormalDist().inv_cdf(1.0 - RISE_LEVEL)
    changes = [c for c in _changes(reward, since, spec) if c.after > c.before and c.z > limit]
    return max(changes, key=lambda change: change.z, default=None)


def _rise_between(reward: Witness, evals: Sequence[int], spec: MonitorSpec) -> Change | None:
    """The reward since the evaluation before the newest, over that before one of ``evals``."""
    after = [o for o in reward.observed if o.step >= evals[-2]][-spec.window :]
    rises: list[Change] = []
    for step in evals[:-1]:
        before = [o for o in reward.observed if o.step < step][-spec.window :]
        before = before or list(reward.observed[:MIN_BEFORE])
        later = [o for o in after if o.step > before[-1].step]
        if later:
            shown = Witness(reward.name, reward.kind, (*before, *later))
            rises += [rise] if (rise := _rise(shown, later[0].step, spec)) else []
    return max(rises, key=lambda rise: rise.z, default=None)


def _fall(witness: Witness, since: int, spec: MonitorSpec, limit: float) -> Change | None:
    falls = [
        change
        for change in _changes(witness, since, spec)
        if change.z >= limit and _is_large(witness.kind, change)
    ]
    return max(falls, key=lambda fall: fall.z, default=None)


def _is_large(kind: Kind, change: Change) -> bool:
    """Whether the fall would matter even if it were certain."""
    fall = change.before - change.after
    if kind == "diversity":
        is_narrow = change.after < KEPT_DIVERSITY * change.before
        return fall >= MIN_FALL_OF_DIVERSITY and is_narrow
    if kind == "score":
        return fall > 0 and fall >= MIN_FALL_OF_SCORE * abs(change.before)
    return fall >= MIN_FALL and (kind == "share" or change.after < MIN_AGREEMENT)


def _changes(witness: Witness, since: int, spec: MonitorSpec) -> Iterator[Change]:
    """The means before ``since`` and from it on, and those before it and of the newest steps.

    The second leaves out the steps in which a change is under way. Nothing with too few steps.
    """
    before = [o for o in witness.observed if o.step < since][-spec.window :]
    after = [o for o in witness.observed if o.step >= since][-spec.window :]
    if len(before) >= MIN_BEFORE and len(after) >= MIN_AFTER:
        yield _change(witness, since, before, after)
        if len(after) > MIN_AFTER:
            yield _change(witness, since, before, after[-MIN_AFTER:])


def _change(
    witness: Witness, since: int, before: Sequence[StepValue], after: Sequence[StepValue]
) -> Change:
    first, second = _mean(before), _mean(after)
    size, ways = abs(first - second), 1 / len(before) + 1 / len(after)
    squares = [_squares(before), _squares(after)]
    # A change takes some steps, which spread what is after it: the spread before it is asked too.
    alone, both = len(before) - 1, len(before) + len(after) - 2
    spreads = ((sum(squares) / both, both), (squares[0] / alone, alone))
    if witness.kind == "share":
        # Tasks are drawn anew each step, so the binomial error is known and needs no degrees.
        z = size / math.sqrt(max(squares[0] / alone * ways, _binomial(before, after)))
    else:
        z = max(
            normal_of_t(size / math.sqrt(max(spread, _FLOOR**2) * ways), degrees)
            for spread, degrees in spreads
        )
    return Change(witness.name, witness.agent, since, first, second, z)


def _squares(side: Sequence[StepValue]) -> float:
    """Sum of the squared differences from the mean of the steps."""
    mean = fmean(o.value for o in side)
    return math.fsum((o.value - mean) ** 2 for o in side)


def _held_out_fall(evals: Mapping[int, Mapping[str, Any]], now: int, limit: float) -> Change | None:
    """The newest evaluation, if it is this step's, against the three before it."""
    steps = [step for step in sorted(evals) if evals[step].get("success") is not None]
    if len(steps) < 2 or steps[-1] != now:
        return None
    seen = [StepValue(s, evals[s]["success"], int(evals[s].get("num_tasks") or 1)) for s in steps]
    before, after = seen[-4:-1], seen[-1:]
    first, second = _mean(before), _mean(after)
    z = (first - second) / math.sqrt(_binomial(before, after))
    if z < limit or first - second < MIN_FALL:
        return None
    return Change(HELD_OUT, "", before[0].step, first, second, z)


def _mean(side: Sequence[StepValue]) -> float:
    total = sum(o.count for o in side)
    return math.fsum(o.value * o.count for o in side) / total if total else fmean([0.0])


def _binomial(before: Sequence[StepValue], after: Sequence[StepValue]) -> float:
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
