"""MAGRPO: joint actions of a decentralised team, compared with their siblings at one history.

All agents of a turn act at once. K candidates of each are combined into joint actions, aligned or
crossed; every joint action is executed, judged and followed to the last turn, and discounted
returns propagate back through the tree (see ``troupe.episodes.joint``). A candidate's advantage is
its return minus the mean of its siblings', which answered the same prompt.

CoMLRL 1.4.3 differs: it divides by the standard deviation unless told not to, sums in
cross mode, ignores its discount, and never trains the last token of a completion.

Source: CoMLRL (arXiv 2508.04652), Section 4.
"""

from troupe.algorithms.base import GroupRelative


class Magrpo(GroupRelative):
    """A tree of joint actions, advantages R - mean, sums over completions."""

    options = frozenset({"joint"})
    required = frozenset({"joint"})
    scale = "none"
    default_aggregation = "sequence_sum"
