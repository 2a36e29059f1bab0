"""Rows with known answers as a task family: what a tiny model for rows of one's own imitates.

A row is what ``troupe.train`` takes, with an ``answer``: a text, or a text for each agent by name.
Prompts are the usual ones of ``troupe.train``. Never judges: it pays nothing.
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any, ClassVar, cast

from pydantic import BaseModel, Field

from troupe.errors import InvalidArgumentError
from troupe.spec.params import Params
from troupe.training.dataset import Row, TaskRows
from troupe.training.functions import CallerEnvironment, Functions, State
from troupe.training.task import RowEnvironment, RowTasks

TASK_NAME = f"{__name__}:AnsweredRows"
MAX_WORDS = 4096
"""Largest vocabulary, the most frequent words first; bytes spell the others."""


class AnsweredRowsParams(Params):
    """Written by ``troupe model tiny --rows``."""

    rows: str = Field(description="File of rows: JSON Lines, CSV or Parquet.")
    digest: str = Field(default="", description="SHA-256 of the rows: other rows, another model.")
    agents: dict[str, str] = Field(min_length=1, description="Instruction by agent, in order.")


class AnsweredRows:
    """One turn on each row; the last tenth, which ``troupe.train`` holds out, is not shown."""

    name: ClassVar[str] = "answered_rows"
    Params: ClassVar[type[BaseModel]] = AnsweredRowsParams
    return_bound: ClassVar[float] = 0.0
    agents: tuple[str, ...] = ()
    local_terms: Mapping[str, Mapping[str, float]] = {}

    def __init__(self, params: BaseModel) -> None:
        given = AnsweredRowsParams.model_validate(params.model_dump())
        self.agents = tuple(given.agents)
        self.local_terms = {agent: {} for agent in self.agents}
        self._rows = TaskRows.of(Path(given.rows))
        self._judge = CallerEnvironment(self._rows, given.agents, Functions(lambda row, texts: 0.0))
        self._judge.check()
        for index, row in enumerate(self._rows.train):
            for agent in self.agents:
                _answer(row, agent, index)

    def taskset(self) -> RowTasks:
        """One task a row."""
        return RowTasks(len(self._rows.train), len(self._rows.held_out))

    def environment(self) -> RowEnvironment:
        """Shows the prompts."""
        return RowEnvironment(self.agents, self._ask)

    def demonstrate(self, state: bytes, agent: str, rng: Random) -> str:
        """The row's answer."""
        place: State = json.loads(state)
        return _answer(self._rows.of_split(place["split"])[place["index"]], agent, place["index"])

    def vocabulary(self) -> Sequence[str]:
        """Words of prompts and answers."""
        env, tasks = self.environment(), self.taskset()
        words: Counter[str] = Counter()
        for index, row in enumerate(self._rows.train):
            state = env.reset(tasks.task("train", index))
            for agent in self.agents:
                for message in env.observe(state, agent):
                    words.update(message.text.split())
                words.update(_answer(row, agent, index).split())
        return [word for word, _ in words.most_common(MAX_WORDS)]

    def _ask(self, call: str, document: Mapping[str, Any]) -> Any:
        if call == "reset":
            return self._judge.reset(document["split"], document["index"])
        return self._judge.step(
            cast("State", document["state"]), document["agent"], document["action"]
        )


def rows_params(rows: Path, instructions: Mapping[str, Any]) -> dict[str, Any]:
    """``task.params`` for a file of rows; without ``instructions`` the agents of its first row.

    Raises InvalidArgumentError or NotFoundError where the file holds no rows.
    """
    read = TaskRows.of(rows)
    answer = read.train[0].get("answer")
    named = list(cast("Mapping[str, Any]", answer)) if isinstance(answer, Mapping) else ["agent"]
    agents = dict(instructions) or dict.fromkeys(named, "")
    return {"rows": str(rows), "digest": read.digest, "agents": agents}


def _answer(row: Row, agent: str, index: int) -> str:
    answer = row.get("answer")
    text = cast("Row", answer).get(agent) if isinstance(answer, Mapping) else answer
    if not isinstance(text, str) or not text:
        raise InvalidArgumentError(
            f"row {index} has no 'answer' of agent '{agent}'; give a text, or one for each agent: "
            f'{{"prompt": "...", "answer": {{"{agent}": "..."}}}}'
        )
    return text
