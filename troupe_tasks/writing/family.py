"""Shared by the writing tasks as task families: parameters, demonstrations, the judge."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field

from troupe.data.prepared import SplitRows
from troupe.data.taskset import PreparedTaskset
from troupe.errors import InvalidArgumentError
from troupe.tasks.family import Split, Task, Taskset
from troupe_tasks.writing.environment import (
    SPLIT_MARK,
    WRITER,
    Genre,
    RewardKind,
    WritingEnvironment,
)
from troupe_tasks.writing.formula import MAX_REWARD
from troupe_tasks.writing.row import MAX_TEXT_CHARS, WritingRow
from troupe_tasks.writing.state import decode_state
from troupe_tasks.writing.taskset import BuiltInTexts
from troupe_tasks.writing.words import TRANSITIONS


class WritingParams(BaseModel):
    """Which texts, and how a pair is paid."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    data: Path | dict[Split, Path] | None = Field(
        default=None,
        description="Folder or file of `troupe data prepare`, or a file for each split; "
        "without it, texts written by this project.",
    )
    reward: RewardKind = Field(
        default="surface",
        description="published: the published formula, which never looks at the source; "
        "surface: the same, times a gate from 0 to 1 for words of the source in the order of "
        "prose; meaning is not read, so it trains form.",
    )
    transitions: dict[str, tuple[str, ...]] = Field(
        default=dict(TRANSITIONS),
        min_length=1,
        description="Transition words by category; those of a publication for comparison with it.",
    )
    shows_partner: bool = Field(
        default=False,
        description="Show the second writer the first one's text; the published task does not.",
    )


class WritingFamily:
    """Two writers whose texts must fit each other. Subclasses say what about."""

    name: ClassVar[str]
    agents: ClassVar[tuple[str, ...]]
    Params: ClassVar[type[BaseModel]] = WritingParams
    local_terms: ClassVar[Mapping[str, Mapping[str, float]]]
    return_bound: ClassVar[float] = MAX_REWARD

    genre: ClassVar[Genre]

    def __init__(self, params: BaseModel) -> None:
        self._params = WritingParams.model_validate(params.model_dump())

    def built_in(self) -> Sequence[WritingRow]:
        """The texts that this project wrote."""
        raise NotImplementedError

    def taskset(self) -> Taskset:
        """The prepared texts, or the built-in ones."""
        if self._params.data is not None:
            return PreparedTaskset(SplitRows(self._params.data, WritingRow))
        return BuiltInTexts(self.name, self.built_in())

    def environment(self) -> WritingEnvironment:
        """The family's judge."""
        return WritingEnvironment(
            self.genre,
            reward=self._params.reward,
            transitions=self._params.transitions,
            shows_partner=self._params.shows_partner,
        )

    def request_task(self, text: str) -> Task:
        """``text`` as the source to write about; its writers are judged as in training."""
        if not 0 < len(text) <= MAX_TEXT_CHARS:
            raise InvalidArgumentError(
                f"a text has 1 to {MAX_TEXT_CHARS} characters, and this one {len(text)}"
            )
        row = WritingRow(id="request", text=text, source="request")
        return Task("request", "test", 0, row.model_dump_json().encode())

    def demonstrate(self, state: bytes, agent: str, rng: Random) -> str:
        """The author's own text for built-in sources, else the beginning of the source."""
        row = decode_state(state).row
        first, second = row.pair or _beginnings(row.text, self.genre.formula.min_tokens)
        if agent == WRITER:
            return f"{first}\n{SPLIT_MARK}\n{second}"
        return first if agent == self.genre.agents[0] else second

    def random_action(self, state: bytes, agent: str, rng: Random) -> str:
        """Words of the source in any order, of a length that may be paid."""
        words = decode_state(state).row.text.split()
        formula = self.genre.formula
        parts = [
            " ".join(rng.choices(words, k=rng.randrange(formula.min_tokens, formula.max_tokens)))
            for _ in range(2 if agent == WRITER else 1)
        ]
        return f"\n{SPLIT_MARK}\n".join(parts)

    def vocabulary(self) -> Sequence[str]:
        """The transition words and the mark between two texts."""
        entries = [entry for entries in self._params.transitions.values() for entry in entries]
        return sorted({word for entry in entries for word in entry.split()} | {SPLIT_MARK})


def _beginnings(text: str, num_words: int) -> tuple[str, str]:
    words = text.split()
    return " ".join(words[: 2 * num_words]), " ".join(words[: 4 * num_words])


def terms(genre: Genre) -> Mapping[str, Mapping[str, float]]:
    """Local terms: ``length`` for each agent, weighing nothing unless the job spec says so.

    The published reward is the team's alone. A sampler that judges one action at a time has
    nothing to tell the first writer's candidates apart by; there, give ``length`` a weight.
    """
    return {agent: {"length": 0.0} for agent in (*genre.agents, WRITER)}


def usual_workflow(genre: Genre) -> Mapping[str, Any]:
    """The published one: each writer once, in order."""
    return {"kind": "turn_based", "order": list(genre.agents), "max_turns": 1}
