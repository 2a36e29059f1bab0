"""The sampler that follows its candidates: each is worth what comes after it.

Decides only: `episodes.follow` draws the candidates and plays their continuations.

Source: VinePPO (arXiv 2410.01679), Section 4: Monte Carlo values of the states within an episode.
"""

from collections.abc import Sequence
from typing import Literal

from troupe.samplers.sampler import GroupingKey

GoesOn = Literal["best", "random", False]

MAX_CONTINUATIONS = 4096
"""Maximum continuations of one ticket."""


class FollowSampler:
    """K candidates at each act of the followed agents, M continuations of each candidate.

    ``agents`` are the followed agents; none means all.
    """

    num_trajectories = 1
    num_baselines = 0
    sees_jointly = False
    grouping: GroupingKey = "observation"

    def __init__(
        self,
        group_size: int,
        *,
        executions: int,
        agents: Sequence[str] = (),
        goes_on: GoesOn = "best",
    ) -> None:
        self.num_candidates = group_size
        self.executions = executions
        self.goes_on: GoesOn = goes_on
        self._agents = tuple(agents)

    def followed(self, agents: Sequence[str]) -> tuple[str, ...]:
        """Those of ``agents`` whose candidates are followed, in their order."""
        return tuple(a for a in agents if not self._agents or a in self._agents)

    def choose(self, rewards: Sequence[float]) -> int:
        """The highest value, the first of equals; with ``goes_on: random`` the first candidate.

        Candidates are independent draws of one distribution, so the first one is a random one.
        """
        if self.goes_on == "random":
            return 0
        return max(range(len(rewards)), key=lambda i: (rewards[i], -i))

    def num_continuations(self, agents: Sequence[str], max_turns: int) -> int:
        """Maximum continuations of one ticket: K * M for each act that is followed.

        Example: K = 4, M = 2 and two followed agents of 3 turns: 4 * 2 * 6 = 48.
        """
        return self.num_candidates * self.executions * self._num_acts(agents, max_turns)

    def most_draws(self, agents: Sequence[str], max_turns: int) -> int:
        """Maximum draws of any one of ``agents`` in one ticket, continuations included.

        A followed agent has t turns left after its own act number T - t; before its first act it
        has all T left, and so has an agent that is not followed.

        Example: K = 4, M = 2, one agent of 3 turns: 12 candidates, and 8 continuations of 2 turns
        and 8 of 1: 12 + 24 = 36.
        """
        width = self.num_candidates * self.executions
        followed = self.followed(agents)
        most = 0
        for agent in agents:
            others = [other for other in followed if other != agent]
            draws = width * max_turns * self._num_acts(others, max_turns)
            if agent in followed:
                acts = self._num_acts([agent], max_turns)
                own = self.num_candidates * acts
                own += width * sum(max_turns - act - 1 for act in range(acts))
                # Without going on, one act of one agent is followed: not both kinds.
                draws = max(draws, own) if self.goes_on is False else draws + own
            elif self.goes_on is not False:
                draws += max_turns
            most = max(most, draws)
        return most

    def _num_acts(self, agents: Sequence[str], max_turns: int) -> int:
        """Maximum followed acts of ``agents`` on the episode that goes on."""
        acts = len(self.followed(agents)) * max_turns
        return min(1, acts) if self.goes_on is False else acts
