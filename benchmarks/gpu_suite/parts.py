"""The table of parts: what each measures, how long it may take, and its command.

Owns the order: what tells most in few minutes comes first.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from benchmarks.gpu_suite.pushes import with_extrapolation
from troupe.spec.memory import GB


@dataclass(frozen=True)
class Suite:
    """What the whole suite was asked for."""

    device: str
    quick: bool
    model: str
    example: str
    steps: int
    tasks: int


@dataclass(frozen=True)
class Part:
    """One part. ``arguments`` are those that make its result another; ``least_s``: with less time
    it is not begun; ``has_limit``: its command takes ``--seconds``, and ends by itself;
    ``has_rows``: it takes those of an unfinished call as ``--before``; ``is_read`` from what
    another part left, so it is done every time."""

    name: str
    what: str
    module: str
    least_s: float
    limit_s: float
    arguments: Callable[[Suite], list[str]]
    has_limit: bool = True
    can_resume: bool = False
    has_rows: bool = False
    is_read: bool = False
    read: Callable[[dict[str, Any]], dict[str, Any]] = lambda line: line

    def key(self, suite: Suite) -> str:
        """What its line is known by."""
        return " ".join([self.module, *self.arguments(suite)])

    def command(
        self, suite: Suite, seconds: float, *, anew: bool, before: Sequence[dict[str, Any]] = ()
    ) -> list[str]:
        """Module and arguments."""
        limit = ["--seconds", f"{seconds:.0f}"] if self.has_limit else []
        begin = ["--anew"] if anew and self.can_resume else []
        rows = ["--before", json.dumps(before)] if before and self.has_rows and not anew else []
        return [self.module, *self.arguments(suite), *limit, *begin, *rows]


def _plain(suite: Suite) -> list[str]:
    return ["--device", suite.device, *(["--quick"] if suite.quick else [])]


def _with_model(suite: Suite) -> list[str]:
    return [*_plain(suite), *(["--model", suite.model] if suite.model else [])]


def _team(suite: Suite) -> list[str]:
    asked = ["--example", suite.example, "--steps", str(suite.steps), "--tasks", str(suite.tasks)]
    return [*_with_model(suite), *asked]


def _phases(suite: Suite) -> list[str]:
    name = "suite-tiny" if suite.quick else f"suite-{suite.example}".replace("_", "-")
    told = ["--name", name]
    if suite.device == "cuda":
        size = torch.cuda.get_device_properties(0).total_memory / GB
        told += ["--gpu-gb", f"{size:.0f}"]
    if suite.device == "cpu" or torch.cuda.device_count() == 1:
        told += ["--shared"]
    return told


_HERE = "benchmarks.gpu_suite"
PARTS: tuple[Part, ...] = (
    Part("environment", "what is here", f"{_HERE}.environment", 10, 120, _plain),
    Part("attention", "segments against a mask", f"{_HERE}.attention", 30, 300, _plain),
    Part("steps", "MFU and memory of steps", f"{_HERE}.steps", 60, 900, _with_model, has_rows=True),
    Part(
        "rollout",
        "pushes by each transport, tokens/s, parity, prefix cache",
        "benchmarks.gpu_rollout",
        180,
        1200,
        _plain,
        has_limit=False,
        read=with_extrapolation,
    ),
    Part("turns", "sleep and wake on one device", f"{_HERE}.turns", 120, 600, _with_model),
    Part(
        "team",
        "a team, base against trained",
        f"{_HERE}.team",
        240,
        6 * 3600,
        _team,
        can_resume=True,
    ),
    Part("speculation", "drafts by prompt lookup", f"{_HERE}.speculation", 120, 600, _with_model),
    Part(
        "phases",
        "idle share and phases of that job",
        f"{_HERE}.phases",
        5,
        60,
        _phases,
        has_limit=False,
        is_read=True,
    ),
)
