"""The task of ``troupe.connect(...).train``: rows and functions that lie in the job's bundle.

A bundle's generated file derives from ``BundledTask`` and names both; env services load it and
judge with it. Never asks the process that submitted the job.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, cast

from pydantic import BaseModel, Field

from troupe.spec.params import Params
from troupe.training.dataset import TaskRows
from troupe.training.functions import CallerEnvironment, Functions, State
from troupe.training.task import RowEnvironment, RowTasks


class BundledParams(Params):
    """Written by ``troupe.connect(...).train``; a person need not."""

    agents: dict[str, str] = Field(min_length=1, description="Instruction by agent, in order.")
    digest: str = Field(description="SHA-256 of the rows.")
    max_turns: int = Field(default=1, ge=1, description="Turns of an episode.")


class BundledTask:
    """Rows as tasks, functions as environment; a subclass gives both."""

    name: ClassVar[str] = "dataset"
    Params: ClassVar[type[BaseModel]] = BundledParams
    return_bound: ClassVar[float] = float("inf")
    functions: ClassVar[Functions]
    rows: ClassVar[Path]
    agents: tuple[str, ...] = ()
    local_terms: Mapping[str, Mapping[str, float]] = {}

    def __init__(self, params: BaseModel) -> None:
        given = BundledParams.model_validate(params.model_dump())
        self.agents = tuple(given.agents)
        self.local_terms = {agent: {"reward": 1.0} for agent in self.agents}
        self.usual_workflow = {"order": list(self.agents), "max_turns": given.max_turns}
        self._rows = read_bundled_rows(self.rows)
        self._judge = CallerEnvironment(self._rows, given.agents, self.functions, given.max_turns)
        self._judge.check()

    def taskset(self) -> RowTasks:
        """One task a row; held-out rows are the validation split."""
        return RowTasks(len(self._rows.train), len(self._rows.held_out))

    def environment(self) -> RowEnvironment:
        """The functions, called in this process."""
        return RowEnvironment(self.agents, self._ask)

    def _ask(self, call: str, document: Mapping[str, Any]) -> Any:
        if call == "reset":
            return self._judge.reset(document["split"], document["index"])
        return self._judge.step(
            cast("State", document["state"]), document["agent"], document["action"]
        )


def bundled_rows(rows: TaskRows) -> bytes:
    """Rows as the file of a bundle."""
    return json.dumps({"train": rows.train, "held_out": rows.held_out}).encode()


def read_bundled_rows(file: Path) -> TaskRows:
    """Rows of a bundle's file."""
    document = json.loads(file.read_bytes())
    return TaskRows(tuple(document["train"]), tuple(document["held_out"]))
