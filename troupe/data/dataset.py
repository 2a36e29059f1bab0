"""Describes a published data set: where its files are, and how to convert a row.

Owns the value type that ``troupe_tasks.datasets`` modules declare. Never does I/O.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from troupe.tasks.family import Split

Row = Mapping[str, Any]
"""One published row: column name to value."""

Convert = Callable[[Row], Mapping[str, Any]]
"""Turns a published row into the fields of ``Dataset.schema``; raises RefusedRowError."""


class RefusedRowError(Exception):
    """A published row that is not usable: counted under ``reason``, and the work continues.

    ``reason`` is a short stable word such as ``no_answer``: it must not quote the row.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Dataset:
    """One published data set, and the task that it provides rows for.

    ``splits`` maps each of Troupe's splits to glob patterns of the files that hold it, relative
    to the root of the hub repository ``hub_id`` (a local copy keeps the same names).
    ``contamination_fields`` names the fields of ``schema`` that train and test must not share.

    Example: ``Dataset("gsm8k", "math", "openai/gsm8k", {"test": ("main/test-*.parquet",)}, ...)``.
    """

    name: str
    task: str
    title: str
    hub_id: str
    splits: Mapping[Split, tuple[str, ...]]
    schema: type[BaseModel]
    convert: Convert
    licence: str
    citation: str
    format_source: str
    contamination_fields: tuple[str, ...] = ("problem",)
