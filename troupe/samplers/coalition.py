"""Whole episodes, each also played by parts of the team, and what an agent's part in it is worth.

Decides which coalitions are played and computes the credit from their returns;
`episodes.coalitions` plays them.

Source: Shapley, "A value for n-person games" (1953), Equation 9; for teams of language models SHARP
(arXiv 2602.08335) and CCPO (arXiv 2603.21563), which estimate it.
"""

from collections.abc import Mapping, Sequence
from itertools import combinations
from math import factorial, fsum
from typing import Literal

from pydantic import Field

from troupe.samplers.parallel import ParallelSampler
from troupe.spec.params import Params

Coalition = frozenset[str]
"""The agents that are present; all others are absent and take their default action."""

MAX_AGENTS = 4
"""Most agents of a team whose coalitions are all played."""

MAX_REPLAYS = 4096
"""Most replays of one ticket's episodes by parts of the team."""


class CoalitionParams(Params):
    """What absent agents do, how the others take it, and what the credit counts."""

    team_weight: float = Field(
        default=0.0, ge=0.0, description="What the team's return counts in each agent's reward."
    )
    credit_weight: float = Field(
        default=1.0, gt=0.0, description="What the agent's part in that return counts."
    )
    others: Literal["react", "repeat"] = Field(
        default="react",
        description="react: present agents answer anew where their prompt has changed; repeat: "
        "they repeat what they said, which costs no tokens and gives messages no worth.",
    )
    default_action: str = Field(
        default="", max_length=4096, description="What an absent agent says at each of its acts."
    )
    default_actions: dict[str, str] = Field(
        default_factory=dict, max_length=64, description="The same, by agent."
    )


class CoalitionSampler(ParallelSampler):
    """K whole episodes of one task, each repeated by the coalitions that its credit needs."""

    def __init__(
        self, group_size: int, kind: Literal["shapley", "counterfactual"], params: CoalitionParams
    ) -> None:
        super().__init__(group_size)
        self.params = params
        self._kind = kind

    @property
    def most_agents(self) -> int | None:
        """Most agents that a team may have; None if any number."""
        return MAX_AGENTS if self._kind == "shapley" else None

    def default_action(self, agent: str) -> str:
        """What ``agent`` says when it is absent."""
        return self.params.default_actions.get(agent, self.params.default_action)

    def coalitions(self, agents: Sequence[str]) -> list[Coalition]:
        """The coalitions to play, in a fixed order; the whole team has played already.

        Example: of agents a and b, "shapley" needs {}, {a} and {b}; "counterfactual" {b} and {a}.
        """
        if self._kind == "counterfactual":
            return [Coalition(agents) - {agent} for agent in agents]
        sizes = range(len(agents))
        return [Coalition(members) for size in sizes for members in combinations(agents, size)]

    def credit(self, agents: Sequence[str], values: Mapping[Coalition, float]) -> dict[str, float]:
        """Each agent's part in the return of the whole team; ``values`` holds that one as well."""
        if self._kind == "shapley":
            return shapley_values(agents, values)
        whole = Coalition(agents)
        return {agent: values[whole] - values[whole - {agent}] for agent in agents}


def shapley_values(agents: Sequence[str], values: Mapping[Coalition, float]) -> dict[str, float]:
    """phi_i = sum over S without i of |S|! (n - |S| - 1)! / n! * (v(S + i) - v(S)).

    ``values`` holds the value of each of the 2 ** n coalitions, the empty one included.

    Example: v = 1 for {a, b}, 0 for all others: 1/2 each.
    """
    size = len(agents)
    credit: dict[str, float] = {}
    for agent in agents:
        others = [other for other in agents if other != agent]
        credit[agent] = fsum(
            factorial(count)
            * factorial(size - count - 1)
            * (values[Coalition(members) | {agent}] - values[Coalition(members)])
            for count in range(size)
            for members in combinations(others, count)
        ) / factorial(size)
    return credit
