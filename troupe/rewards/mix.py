"""Mixes team and local terms into the reward by which candidates are compared."""

from collections import defaultdict
from collections.abc import Mapping

from troupe.errors import InvalidArgumentError, RewardFailedError
from troupe.finite import is_finite
from troupe.spec.issues import Issue, SpecInvalidError, suggest
from troupe.spec.reward import RewardSpec

TEAM_TERM = "team/reward"
"""Name of the team's reward among an agent's terms; no local term can have it, because what stands
before a slash is an agent."""
_MAX_SHOWN = 200


def check_paid(
    task: str, agent: str, action: str, team_reward: object, local_rewards: Mapping[str, object]
) -> None:
    """Raise RewardFailedError where ``task`` paid ``action`` anything but finite numbers."""
    for term, value in {TEAM_TERM: team_reward, **local_rewards}.items():
        if is_finite(value):
            continue
        shown = "nan, or no number," if value != value else repr(value)
        label = "" if term == TEAM_TERM else f" as term '{term}'"
        raise RewardFailedError(
            f"task '{task}' paid {shown}{label} for agent '{agent}', action "
            f"{action[:_MAX_SHOWN]!r}; its step must pay a finite number for every action"
        )


def terms_by_agent(actor: str, local_rewards: Mapping[str, float]) -> dict[str, dict[str, float]]:
    """Local terms by the agent that they belong to.

    A term named ``agent/term`` rewards another agent for this action, so that the result of a game
    reaches all seats, whoever moved last.

    Example: ``terms_by_agent("a", {"legal": 1.0, "b/outcome": -1.0})`` is
    ``{"a": {"legal": 1.0}, "b": {"outcome": -1.0}}``.
    """
    by_owner: defaultdict[str, dict[str, float]] = defaultdict(dict)
    for name, value in local_rewards.items():
        owner, slash, term = name.partition("/")
        by_owner[owner if slash else actor][term if slash else name] = value
    return dict(by_owner)


class RewardMix:
    """reward = alpha * team + sum of weight * local term (arXiv 2510.11062, Eq. 3)."""

    def __init__(self, spec: RewardSpec, defaults: Mapping[str, Mapping[str, float]]) -> None:
        """``defaults``: agent -> term -> weight, from the task family; the spec overrides them.

        Raises SpecInvalidError when the spec gives a weight to an unknown term.
        """
        issues = [
            Issue(
                f"/reward/weights/{agent}/{term}",
                f"agent '{agent}' has no reward term '{term}'; {suggest(term, defaults[agent])}",
            )
            for agent, weights in spec.weights.items()
            if agent in defaults
            for term in weights
            if term not in defaults[agent]
        ]
        if issues:
            raise SpecInvalidError(issues)
        self._alpha = spec.team_weight
        self._weights = {
            agent: {**weights, **spec.weights.get(agent, {})} for agent, weights in defaults.items()
        }

    def __call__(self, agent: str, team_reward: float, local_rewards: Mapping[str, float]) -> float:
        """The mixed reward of one action; raises InvalidArgumentError on unknown terms."""
        weights = self._weights[agent]
        unknown = local_rewards.keys() - weights.keys()
        if unknown:
            raise InvalidArgumentError(
                f"the environment returned reward terms {sorted(unknown)} for agent '{agent}' that "
                "its task family does not declare in local_terms"
            )
        local = sum(weights[term] * value for term, value in sorted(local_rewards.items()))
        return self._alpha * team_reward + local

    def weights(self, agent: str) -> dict[str, float]:
        """Weight of each of the agent's terms; ``TEAM_TERM`` has the team's."""
        return {TEAM_TERM: self._alpha, **self._weights[agent]}
