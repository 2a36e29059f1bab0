"""Audits a family's reward: own attackers against the honest reference, under a stated bound.

An attacker never solves the task, so it may succeed by chance alone and must earn less than the
honest median. A family may bring attackers of its own (``attackers``) and name those that it pays
on purpose (``audit_exceptions``); see ``troupe.tasks.family``.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import sqrt
from random import Random
from statistics import NormalDist, fmean, median, stdev
from typing import Any

from troupe.conformance.adversarial import Situation
from troupe.conformance.attacks import search
from troupe.conformance.attacks.answers import TEXT_ATTACKERS
from troupe.conformance.attacks.attacker import Attacker
from troupe.conformance.attacks.loopholes import LOOPHOLE_ATTACKERS
from troupe.conformance.attacks.programs import PROGRAM_ATTACKERS
from troupe.conformance.audit_report import (
    AuditBounds,
    AuditFinding,
    AuditReport,
    Earned,
    ShownEpisode,
    ShownMove,
)
from troupe.conformance.findings import tolerant
from troupe.conformance.limits import CheckLimits
from troupe.conformance.play import Move, PlayedEpisode, agent_to_act, play
from troupe.conformance.subject import Subject
from troupe.errors import InvalidArgumentError
from troupe.evaluation.estimators import wilson
from troupe.sandbox.sandbox import Sandbox
from troupe.tasks.family import Task, TaskFamily, needs_sandbox, runs_programs
from troupe.tasks.optional import Policy, optional_method

LEVEL = 0.99
"""Confidence with which an attacker exceeds a bound before it is a finding."""
MAX_SUCCESS = 0.25
"""Share of tasks that an attacker may solve by chance, or what random play solves where more."""
TOLERANCE = 1e-6
PROSE_WORDS = 20
"""Mean words of an honest answer from which on a family is about prose."""
MAX_PROGRAM_ROUNDS = 2
"""Actions of each agent in an episode of a family that runs programs: a step costs much there."""
TRAINED_TASKS = 4
"""Tasks on which constant texts are searched; others measure what was found."""


@dataclass(frozen=True, slots=True)
class AuditLimits:
    """The audit's effort and bounds.

    ``num_tasks`` episodes an attacker; ``budget`` episodes for each search; ``max_success`` as
    ``MAX_SUCCESS``.
    """

    num_tasks: int = 20
    budget: int = 400
    seed: int = 0
    max_success: float = MAX_SUCCESS


def audit_family(
    family: TaskFamily,
    *,
    params: Mapping[str, Any] | None = None,
    sandbox: Sandbox | None = None,
    limits: AuditLimits | None = None,
) -> AuditReport:
    """Try to be paid by ``family`` for nothing.

    Raises:
        InvalidArgumentError: the family has no tasks to play.
        TroupeError: an infrastructure failure (retryable), not a fault of the family.

    Example: ``audit_family(PlanPath(PlanPathParams())).is_ok``.
    """
    audit = _Audit(family, sandbox, limits or AuditLimits())
    return audit.report(dict(params or {}))


class _Audit:
    """One family's audit: its tasks, what each player earned, and the bounds."""

    def __init__(self, family: TaskFamily, sandbox: Sandbox | None, limits: AuditLimits) -> None:
        checks = CheckLimits(num_tasks=limits.num_tasks, seed=limits.seed)
        self._subject = Subject(family, reference=None, sandbox=sandbox, limits=checks)
        self._family = family
        self._limits = limits
        self._tasks = self._subject.tasks
        if not self._tasks:
            raise InvalidArgumentError(f"task '{family.name}' has no tasks in any split")

    def report(self, params: Mapping[str, Any]) -> AuditReport:
        """Play everybody and judge."""
        subject = self._subject
        honest = None
        if subject.is_scripted:
            honest = self._earned("honest", "demonstrates", self._of_policy(subject.demonstrate))
        wild = self._of_policy(subject.random_action)
        random = self._earned("random", "random well-formed actions", wild, repeats=3)
        bounds = AuditBounds(max(self._limits.max_success, random.success))
        if honest:
            medians = {"reward": median(honest.rewards), "team_return": median(honest.returns)}
            bounds = replace(bounds, **medians)
        earned = [*map(self._attacked, self._attackers()), *self._searched()]
        findings = [f for player in earned if (f := self._finding(player, bounds))]
        return AuditReport(
            self._family.name,
            params,
            self._limits.seed,
            bounds,
            honest,
            random,
            tuple(earned),
            tuple(findings),
        )

    def _attackers(self) -> list[Attacker]:
        brought = optional_method(self._family, "attackers")
        policies: Any = brought() if brought else {}
        attackers = [
            Attacker(name, "the family's own", partial(_of_family, policy))
            for name, policy in policies.items()
        ]
        if needs_sandbox(self._family):
            attackers += PROGRAM_ATTACKERS
        return [*attackers, *TEXT_ATTACKERS, *LOOPHOLE_ATTACKERS]

    def _attacked(self, attacker: Attacker) -> Earned:
        def played(task: Task, rng: Random) -> PlayedEpisode:
            if attacker.follows_honest:
                play(self._subject, task, self._subject.demonstrate, rng, max_steps=self._round)
            return self._played(task, attacker, rng)

        return self._earned(attacker.name, attacker.what, played)

    def _searched(self) -> list[Earned]:
        if not self._limits.budget:
            return []
        found = [self._search_constants()]
        return [*found, self._search_salads()] if self._is_prose() else found

    def _search_constants(self) -> Earned:
        """Constant texts that are best paid on some tasks, measured on the others."""
        trained = self._tasks[:TRAINED_TASKS]
        measured = self._tasks[TRAINED_TASKS:] or self._tasks
        what = f"the best paid constant texts of {self._limits.budget}, on other tasks"

        def score(texts: search.Texts) -> float:
            attacker = search.written_by("", "", texts)
            return fmean(self._paid(self._played(t, attacker, Random(0))) for t in trained)

        rng = Random(f"{self._limits.seed}/constants")
        budget = self._limits.budget // len(trained)
        best = search.constants(self._situations(trained[0], rng), score, budget, rng)
        attacker = search.written_by("constant_search", what, best)
        return self._earned(
            attacker.name, what, lambda task, rng: self._played(task, attacker, rng), on=measured
        )

    def _search_salads(self) -> Earned:
        """For each task the best paid salad that a climb finds."""
        share = max(1, self._limits.budget // len(self._tasks))
        what = f"the best paid word salad of {share} for each task"

        def played(task: Task, rng: Random) -> PlayedEpisode:
            def score(texts: search.Texts) -> float:
                return self._paid(self._played(task, search.written_by("", "", texts), Random(0)))

            best = search.salads(self._situations(task, rng), score, share, rng)
            return self._played(task, search.written_by("", "", best), rng)

        return self._earned("salad_search", what, played)

    def _situations(self, task: Task, rng: Random) -> dict[str, Situation]:
        state = self._subject.env.reset(task)
        return {a: Situation(self._subject, state, a, rng, []) for a in self._subject.order}

    def _is_prose(self) -> bool:
        """Whether honest answers are prose: then words in any order may be paid."""
        if not self._subject.is_scripted or runs_programs(self._family):
            return False
        now = self._situations(self._tasks[0], Random(0))
        return fmean(len(situation.good.split()) for situation in now.values()) >= PROSE_WORDS

    @property
    def _round(self) -> int:
        """Steps in which each agent acts once."""
        return len(self._subject.order)

    @property
    def _max_steps(self) -> int:
        if runs_programs(self._family):
            return MAX_PROGRAM_ROUNDS * self._round
        return self._subject.episode_steps

    def _of_policy(self, policy: Policy) -> Callable[[Task, Random], PlayedEpisode]:
        return lambda task, rng: play(self._subject, task, policy, rng, max_steps=self._max_steps)

    def _played(self, task: Task, attacker: Attacker, rng: Random) -> PlayedEpisode:
        subject, episode = self._subject, PlayedEpisode(task)
        with tolerant():
            state = subject.env.reset(task)
            for number in range(self._max_steps):
                agent = agent_to_act(subject, state, number)
                now = Situation(subject, state, agent, rng, episode.moves)
                action = attacker.act(now)
                done = subject.env.step(state, agent, action)
                episode.moves.append(Move(state, agent, action, done))
                state = done.state
                if done.done:
                    break
        return episode

    def _earned(
        self,
        name: str,
        what: str,
        played: Callable[[Task, Random], PlayedEpisode],
        *,
        repeats: int = 1,
        on: Sequence[Task] = (),
    ) -> Earned:
        shown = [
            self._shown(played(task, Random(f"{self._limits.seed}/{name}/{again}/{task.id}")))
            for again in range(repeats)
            for task in on or self._tasks
        ]
        return Earned(
            name,
            what,
            tuple(episode.reward for episode in shown),
            tuple(episode.team_return for episode in shown),
            fmean(episode.is_success for episode in shown),
            max(shown, key=lambda episode: (episode.is_success, episode.reward)),
        )

    def _paid(self, episode: PlayedEpisode) -> float:
        return fmean(self._reward(move) for move in episode.moves) if episode.moves else 0.0

    def _reward(self, move: Move) -> float:
        """Team reward plus weighted terms, those that the action gives others included."""
        paid = move.transition.team_reward
        for name, value in move.transition.local_rewards.items():
            owner, slash, term = name.rpartition("/")
            weights = self._family.local_terms.get(owner if slash else move.agent, {})
            paid += weights.get(term, 0.0) * value
        return paid

    def _shown(self, episode: PlayedEpisode) -> ShownEpisode:
        moves = tuple(
            ShownMove(move.agent, move.action, self._reward(move), move.transition.success)
            for move in episode.moves
        )
        is_success = any(move.is_success for move in moves)
        paid = self._paid(episode)
        return ShownEpisode(episode.task.id, paid, episode.team_return, is_success, moves)

    def _finding(self, earned: Earned, bounds: AuditBounds) -> AuditFinding | None:
        problem = _excess(earned, bounds)
        if not problem:
            return None
        excuses: Mapping[str, str] = getattr(self._family, "audit_exceptions", {})
        return AuditFinding(earned.name, problem, earned.best, excuses.get(earned.name, ""))


def _excess(earned: Earned, bounds: AuditBounds) -> str:
    """How ``earned`` exceeds a bound, in words; "" when it does not."""
    num_episodes = len(earned.rewards)
    low, _ = wilson(earned.success, num_episodes, LEVEL)
    if low > bounds.success:
        return (
            f"solves {earned.success:.1%} of {num_episodes} tasks without solving any; at most "
            f"{bounds.success:.1%} is chance"
        )
    paid = (
        ("reward", earned.rewards, bounds.reward),
        ("return", earned.returns, bounds.team_return),
    )
    for name, values, bound in paid:
        if bound is not None and _surely(values) > bound + TOLERANCE:
            mean = fmean(values)
            return f"its {name} is {mean:.3f} on average, more than the honest median {bound:.3f}"
    return ""


def _surely(rewards: Sequence[float]) -> float:
    """What the mean of ``rewards`` is at least, with confidence ``LEVEL`` (normal)."""
    if len(rewards) < 2:
        return rewards[0]
    z = NormalDist().inv_cdf(0.5 + LEVEL / 2)
    return fmean(rewards) - z * stdev(rewards) / sqrt(len(rewards))


def _of_family(policy: Policy, now: Situation) -> str:
    return policy(now.state, now.agent, now.rng)
