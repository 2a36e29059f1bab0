"""What a case brought: recovery times, and every difference from the undisturbed run."""

import json
import os
from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from platform_world import trained_bytes, trained_groups

OTHER_STEPS = "metrics.jsonl has other steps"


@dataclass
class Outcome:
    """What one case brought; a line of the recorded runs.

    ``serving_s``: from the injection (for a zombie: from its awakening) until the victim serves
    again; ``progress_s``: until the job went on. None: the job had ended before. ``load``: the
    machine's load average. ``ended``: the reason of a job that was allowed to fail and did.
    ``num_packets_lost``: by the network's fault.
    """

    case: str
    victim: str
    phase: str
    how: str
    serving_s: float | None = None
    progress_s: float | None = None
    job_s: float = 0.0
    load: float = field(default_factory=lambda: round(os.getloadavg()[0], 1))
    num_groups: int = 0
    num_lost: int = 0
    num_duplicated: int = 0
    same_weights: bool = False
    ended: str = ""
    num_packets_lost: int = 0
    faults: list[str] = field(default_factory=list[str])

    def compare(self, found: Path, expected: Path, versions: list[int]) -> None:
        """Fill in what the run folder ``found`` has other than ``expected``."""
        wanted, got = _groups(expected), _groups(found)
        self.num_groups = wanted.total()
        self.num_lost = (wanted - got).total()
        self.num_duplicated = (got - wanted).total()
        self.same_weights = trained_bytes(found) == trained_bytes(expected)
        checks = {
            "groups were lost": not self.num_lost,
            "groups were trained twice": not self.num_duplicated,
            "the order of training differs": trained_groups(found) == trained_groups(expected),
            "the trained weights differ": self.same_weights,
            OTHER_STEPS: _steps(found) == _steps(expected),
            "episodes.jsonl has other episodes": _episodes(found) == _episodes(expected),
            "versions went back": versions == sorted(versions),
            "the last version was not told": versions[-1:] == [_num_steps(expected)],
        }
        self.faults += [words for words, holds in checks.items() if not holds]

    def write(self, folder: Path | None) -> None:
        """Append to the recorded runs, if they are wanted."""
        if folder is not None:
            with (folder / "chaos.jsonl").open("a") as file:
                file.write(f"{json.dumps(asdict(self))}\n")


def _groups(run_dir: Path) -> Counter[tuple[int, str]]:
    return Counter((step, name) for step, names in trained_groups(run_dir) for name in names)


def _lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def _steps(run_dir: Path) -> list[tuple[str, int]]:
    """Kind and step of each line, each kind in its own order: an evaluation may overtake a step."""
    lines = _lines(run_dir / "metrics.jsonl")
    return sorted(((x["kind"], x["step"]) for x in lines), key=lambda known: known[0])


def _num_steps(run_dir: Path) -> int:
    return sum(kind == "train" for kind, _ in _steps(run_dir))


def _episodes(run_dir: Path) -> Counter[str]:
    mark = f"{run_dir.name}/"
    return Counter(x["episode_id"].replace(mark, "") for x in _lines(run_dir / "episodes.jsonl"))
