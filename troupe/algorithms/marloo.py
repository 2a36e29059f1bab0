"""MARLOO: joint trajectories of a team, compared with the mean of the others.

RLOO in which a group holds the turns of one agent over the team's K joint trajectories, or with
the spec's part ``joint`` the candidates of one agent at a node of MAGRPO's joint tree.

Source: RLOO (arXiv 2402.14740), Section 2; for teams of LLMs: CoMLRL (arXiv 2508.04652).
"""

from troupe.algorithms.rloo import Rloo


class Marloo(Rloo):
    """Per agent, over the joint trajectories of the team or at a node of its joint tree."""

    options = frozenset({"joint"})
