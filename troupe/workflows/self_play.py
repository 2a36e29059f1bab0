"""Seats of a game act on their turn; the environment decides whose turn it is."""

from collections import Counter
from collections.abc import Mapping

from troupe.errors import InvalidArgumentError
from troupe.spec.job import WorkflowSpec
from troupe.workflows.workflow import EnvironmentView, Team


class SelfPlay:
    """The workflow of turn-taking games: each seat that sees something acts, in seat order.

    An empty observation means that another seat is to move, so any seat may begin. The seats of one
    policy play against (or with) themselves; a seat on another policy is an opponent. A single seat
    in ``order`` plays against the environment's script.

    Source: self-play of one shared policy in all roles as in SPIRAL (arXiv 2506.24119).
    """

    def __init__(self, spec: WorkflowSpec) -> None:
        self._order = tuple(spec.order)
        self._max_turns = spec.max_turns

    async def run(self, team: Team, env: EnvironmentView) -> None:
        """Play until the game is over, or a seat would begin a turn beyond ``max_turns``.

        Raises:
            InvalidArgumentError: the game waits for a seat that ``order`` does not name.
        """
        await self.resume(team, env, {})

    async def resume(self, team: Team, env: EnvironmentView, acts: Mapping[str, int]) -> None:
        """Like ``run``, when the seats have already acted ``acts`` times each."""
        turns = Counter(acts)
        while not env.is_done:
            mover = self._mover(env)
            if turns[mover] == self._max_turns:
                return
            turns[mover] += 1
            await team[mover].act(env.observe(mover))

    def _mover(self, env: EnvironmentView) -> str:
        """The first seat in order that has something to decide."""
        for agent in self._order:
            if env.observe(agent):
                return agent
        raise InvalidArgumentError(
            f"the game is not over and none of {', '.join(self._order)} is to move: it waits for a "
            "seat that the job does not have; name every seat of the task in /workflow/order and "
            "/agents, or let the task script the others"
        )
