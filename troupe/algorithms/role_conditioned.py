"""Role-conditioned advantages for self-play: each seat is compared with itself only.

When one policy plays all seats of a game, the seats' returns differ for reasons unrelated to
actions, such as who moves first. A baseline over all seats would credit the luckier one. SPIRAL
subtracts a baseline of the same game and role, ``A = R_role(trajectory) - b(game, role)``, and
does not divide by a standard deviation.

SPIRAL's baseline is a moving average over past batches. Here it is the mean return of the *other*
trajectories of the same seat in the step, over all its tasks (leave-one-out). Like the moving
average it does not depend on the trajectory it is subtracted from, so the gradient stays unbiased;
and it is a function of the step alone, so a resumed job gives the same curve without checkpointing
it.

Source: SPIRAL (arXiv 2506.24119), role-conditioned advantage estimation; leave-one-out: RLOO
(arXiv 2402.14740).
"""

from __future__ import annotations

from collections.abc import Sequence

from troupe.algorithms.advantages import group_relative
from troupe.algorithms.algorithm import GroupOutcome
from troupe.algorithms.base import GroupRelative


class RoleConditioned(GroupRelative):
    """Whole games of each task; each seat's return against its other games of the step.

    ``scale: std`` divides by the standard deviation of the seat's returns, which SPIRAL does not.
    Every turn carries its trajectory's advantage, and a trajectory counts once. A seat with one
    game has no baseline and gets 0.

    Example: returns 1, 0 and -1 of one seat give 1.5, 0 and -1.5.
    """

    scale = "none"
    compares_in_group = False
    least_candidates = 1

    def advantages(self, group: GroupOutcome) -> list[float]:
        """The returns themselves: the baseline spans the step."""
        return [candidate.reward for candidate in group.candidates]

    def across_groups(
        self, groups: Sequence[GroupOutcome], advantages: Sequence[list[float]]
    ) -> list[list[float]]:
        """R - mean of the seat's other trajectories in the step."""
        returns: dict[str, dict[tuple[int, int], float]] = {}
        for number, group in enumerate(groups):
            seat_returns = returns.setdefault(group.agent, {})
            seat_returns.update({(number, c.trajectory): c.reward for c in group.candidates})
        scale = "std" if self.is_scaled else "none"
        by_seat = {
            agent: dict(
                zip(
                    seat_returns,
                    group_relative(list(seat_returns.values()), scale, "leave_one_out"),
                    strict=True,
                )
            )
            for agent, seat_returns in returns.items()
        }
        return [
            [by_seat[group.agent][number, c.trajectory] for c in group.candidates]
            for number, group in enumerate(groups)
        ]
