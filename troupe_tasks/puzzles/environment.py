"""Judges one action of any puzzle on its own copy of the state.

Work left is the puzzle's own distance. The team is paid only for a new least distance, so
undoing and doing again, refused actions and repetition collect nothing.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace

from troupe.errors import InvalidArgumentError
from troupe.tasks.agents import known_agent
from troupe.tasks.family import Observation, Task, Transition
from troupe_tasks.puzzles import prompts
from troupe_tasks.puzzles.answers import Answer, read_answer
from troupe_tasks.puzzles.puzzle import TOOL, Played, Puzzle, PuzzleParams
from troupe_tasks.puzzles.state import State, Trial, decode_state, encode_state

RETURN_BOUND = 1.0
"""Let d be the first distance. Half of the pay is for the way: the least distance falls from d to
0 at the lowest, which pays 1/2 in all. The other half is for the solution, paid once."""

LOCAL_TERMS: Mapping[str, float] = {"format": 0.1, "legal": 0.1, "progress": 0.8}
"""Default weights of an agent's terms."""


class PuzzleEnvironment:
    """The pure function of a puzzle: see ``troupe.tasks.family.Environment``.

    ``prompt`` gives what an agent sees in a state; without one it is told in words.
    """

    def __init__(
        self,
        puzzle: Puzzle,
        params: PuzzleParams,
        prompt: Callable[[State, str], Observation] | None = None,
    ) -> None:
        self._puzzle = puzzle
        self._params = params
        self._prompt = prompt or self._in_words

    def reset(self, task: Task) -> bytes:
        """The first state: the instance's first board, nothing tried."""
        instance = task.payload.decode()
        board = self._puzzle.start(instance)
        first = self._puzzle.distance(instance, board)
        if not first:
            raise InvalidArgumentError(
                f"{self._puzzle.title} task '{task.id}' is solved or unsolvable from the start; "
                "take tasks from the family's taskset."
            )
        return encode_state(State(instance, board, first, best=first, tried=first))

    def observe(self, state: bytes, agent: str) -> Observation:
        """What ``agent`` sees, on the present board."""
        self._keyword(agent)
        return self._prompt(decode_state(state), agent)

    def step(self, state: bytes, agent: str, action: str) -> Transition:
        """Try the tool's actions on a copy, or play the planner's actions for real."""
        before = decode_state(state)
        puzzle, keyword = self._puzzle, self._keyword(agent)
        answer = read_answer(keyword, puzzle.item, action, self._params.max_actions)
        played = puzzle.play(before.instance, before.board, answer.actions)
        left = puzzle.distance(before.instance, played.board)
        local_rewards = self._local_rewards(before, agent, answer, played)
        if agent == TOOL:
            trial = Trial(answer.actions, played.board, played.refused)
            after = replace(before, trial=trial, tried=_least(before.tried, left))
            return self._transition(after, 0.0, local_rewards, answer, played)
        best = _least(before.best, left)
        after = replace(before, board=played.board, best=best, trial=None)
        return self._transition(after, _team_reward(before, after), local_rewards, answer, played)

    def _in_words(self, now: State, agent: str) -> Observation:
        params = self._params
        return prompts.observation(self._puzzle, now, agent, params.style, params.max_actions)

    def _local_rewards(
        self, before: State, agent: str, answer: Answer, played: Played
    ) -> dict[str, float]:
        """The acting agent's terms. Only progress is ever above 0, so long games pay nothing.

        ``format``: -1 for a malformed answer. ``legal``: -1 when an action is refused.
        ``progress``: share of the first distance that the actions close, negative when they lead
        away, -1 when they lose the puzzle. The tool is paid only beyond what was tried or reached
        before, so trying the same again pays once. Each agent's sum to at most 1 in an episode.
        """
        left = self._puzzle.distance(before.instance, before.board)
        then_left = self._puzzle.distance(before.instance, played.board)
        if left is None:
            progress = 0.0
        elif then_left is None:
            progress = -1.0
        elif agent == TOOL and then_left < left:
            progress = max(0, min(before.best, before.tried) - then_left) / before.first
        else:
            progress = (left - then_left) / before.first
        return {
            "format": 0.0 if answer.is_well_formed else -1.0,
            "legal": -1.0 if played.refused else 0.0,
            "progress": progress,
        }

    def _transition(
        self,
        after: State,
        team_reward: float,
        local_rewards: dict[str, float],
        answer: Answer,
        played: Played,
    ) -> Transition:
        left = self._puzzle.distance(after.instance, after.board)
        info = {
            "board": self._puzzle.drawing(after.instance, after.board),
            "actions": list(answer.actions),
            "refused": list(played.refused),
            "distance": left,
            "lost": left is None,
        }
        return Transition(
            encode_state(after),
            team_reward,
            local_rewards,
            done=not left,
            success=left == 0,
            info=info,
        )

    def _keyword(self, agent: str) -> str:
        keywords = self._puzzle.keywords
        return keywords[known_agent(agent, keywords, task=self._puzzle.title)]


def _team_reward(before: State, after: State) -> float:
    way = (before.best - after.best) / before.first
    is_solved_now = after.best == 0 < before.best
    return way / 2 + (0.5 if is_solved_now else 0.0)


def _least(least: int, distance: int | None) -> int:
    return least if distance is None else min(least, distance)
