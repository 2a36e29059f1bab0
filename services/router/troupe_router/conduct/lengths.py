"""Predicts which tickets of a round are long, from the tokens of earlier rounds.

Owns the estimates, by task and agent. They decide in which order tickets are started and nothing
else: a ticket's place, seed and version stay, so the weights do too. Not kept: a new conductor
begins without estimates.
"""

from collections import OrderedDict, defaultdict
from collections.abc import Iterable, Sequence

from troupe.api.records.v1 import records_pb2 as pb
from troupe.episodes.lines import num_tokens
from troupe.ids import ticket_position

MAX_TASKS = 65_536
"""Tasks whose lengths are remembered; the one that was not played for longest is forgotten."""
_NEWEST = 0.5
"""Weight of a task's newest length; policies change, and lengths with them."""


class TicketLengths:
    """The lengths of one job's tickets, in tokens that must be sampled one after another."""

    def __init__(self) -> None:
        self._by_task: OrderedDict[tuple[str, int], dict[str, float]] = OrderedDict()
        self._by_agent: dict[str, float] = {}

    def learn(self, split: str, indices: Sequence[int], episodes: Iterable[pb.Episode]) -> None:
        """Take in the episodes of a round of these tasks; dropped ones say nothing.

        Nor do those beyond ``indices``: a round that was open while its job was paused has the
        tasks of the spec before.
        """
        of_round: defaultdict[str, list[float]] = defaultdict(list)
        for episode in sorted(episodes, key=lambda episode: episode.episode_id):
            position = ticket_position(episode.episode_id)
            if episode.dropped_reason or position >= len(indices):
                continue
            task = split, indices[position]
            known = self._by_task.pop(task, {})
            for agent, tokens in tokens_by_agent(episode).items():
                known[agent] = _moved(known.get(agent), tokens)
                of_round[agent].append(tokens)
            self._by_task[task] = known
        while len(self._by_task) > MAX_TASKS:
            self._by_task.popitem(last=False)
        for agent, lengths in of_round.items():
            self._by_agent[agent] = _moved(self._by_agent.get(agent), sum(lengths) / len(lengths))

    def longest_first(self, tickets: Sequence[pb.Ticket]) -> list[pb.Ticket]:
        """The tickets, longest first; equal ones keep their order.

        An agent that never played a task is taken to be as long there as it is on average.
        """
        return sorted(tickets, key=lambda ticket: -self._expected(ticket))

    def _expected(self, ticket: pb.Ticket) -> float:
        known = self._by_task.get((ticket.split, ticket.task_index), {})
        return sum({**self._by_agent, **known}.values())


def tokens_by_agent(episode: pb.Episode) -> dict[str, float]:
    """Each agent's tokens that had to be sampled one after another.

    A turn is as long as its longest candidate; independent trajectories run side by side.
    """
    longest: defaultdict[tuple[str, int, int], int] = defaultdict(int)
    for group in episode.groups:
        for candidate in group.candidates:
            turn = (group.agent, candidate.trajectory, candidate.turn)
            longest[turn] = max(longest[turn], num_tokens(candidate))
    paths: defaultdict[tuple[str, int], int] = defaultdict(int)
    for (agent, trajectory, _), tokens in longest.items():
        paths[agent, trajectory] += tokens
    by_agent: dict[str, float] = {}
    for (agent, _), tokens in paths.items():
        by_agent[agent] = max(by_agent.get(agent, 0.0), float(tokens))
    return by_agent


def _moved(estimate: float | None, newest: float) -> float:
    return newest if estimate is None else estimate + _NEWEST * (newest - estimate)
