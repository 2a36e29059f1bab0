"""The results of a run, read from its folder: curves, episodes and trained policies.

Reads files alone, so it works for any run folder, with or without a platform. Never changes one.
"""

import html
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Integral
from pathlib import Path
from typing import Any, Protocol, get_args

from troupe.clients.rest.models.episodes import EpisodeKind
from troupe.episodes.lines import Line
from troupe.errors import InvalidArgumentError, NotFoundError
from troupe.evaluation.curve import figure
from troupe.evaluation.documents import read_object, summary_of
from troupe.evaluation.run_report import whole_lines
from troupe.evaluation.transcripts import transcript

_HTML_CHARS = 2000


@dataclass(frozen=True, slots=True)
class RecordedEpisode:
    """One episode of a run; ``line`` is its record in episodes.jsonl.

    In a notebook it shows itself as a tree; ``print`` shows the conversation.
    """

    line: Line

    @property
    def id(self) -> str:
        """``train-00004/00017``: round and place."""
        return str(self.line["episode_id"])

    @property
    def is_success(self) -> bool:
        """Whether the task was solved; of several trajectories, all of them."""
        return bool(self.line["is_success"])

    @property
    def reward(self) -> float:
        """Mean over agents of what a held-out episode brought them; of a training episode, the
        mean reward of all candidates, siblings included.
        """
        rewards = list(self.line.get("rewards", {}).values()) or [
            c["reward"] for group in self.line["groups"] for c in group["candidates"]
        ]
        return sum(rewards) / len(rewards) if rewards else 0.0

    @property
    def texts(self) -> dict[str, str]:
        """The last text of each agent that the episode went on from."""
        return {
            group["agent"]: candidate["text"]
            for group in self.line["groups"]
            for candidate in group["candidates"]
            if candidate["is_chosen"]
        }

    def __str__(self) -> str:
        return transcript(self.line)

    def _repr_html_(self) -> str:
        """Turns, agents and candidates as nested details; texts are escaped."""
        parts = [_group_html(group) for group in self.line["groups"]]
        word = "solved" if self.is_success else "not solved"
        title = html.escape(f"{self.id}  {self.line['task_id']}  {word}")
        return f"<div><b>{title}</b>{''.join(parts)}</div>"


def _group_html(group: Mapping[str, Any]) -> str:
    rows = "".join(
        f"<tr><td>{'&#9656;' if c['is_chosen'] else ''}</td><td>{c['reward']:+.3f}</td>"
        f"<td><pre style='white-space:pre-wrap;margin:0'>"
        f"{html.escape(c['text'][:_HTML_CHARS])}</pre></td></tr>"
        for c in group["candidates"]
    )
    title = html.escape(f"turn {group['turn']}  {group['agent']}  ({group['policy']})")
    return f"<details open><summary>{title}</summary><table>{rows}</table></details>"


class TrainedPolicy(Protocol):
    """The trained weights of one policy."""

    @property
    def name(self) -> str:
        """The policy's name."""
        ...

    def save(self, target: str | Path, *, merged: bool = False) -> Path:
        """Write the adapter to the folder ``target``, or the whole model with ``merged``."""
        ...


@dataclass(frozen=True, slots=True)
class LocalPolicy:
    """A ``TrainedPolicy`` as files of this machine, which peft and transformers load.

    ``adapter`` is None for full weights. ``merged`` is a whole model.
    """

    name: str
    adapter: Path | None
    merged: Path | None

    def save(self, target: str | Path, *, merged: bool = False) -> Path:
        """Copy the adapter to the folder ``target``, or the whole model with ``merged``.

        Raises InvalidArgumentError when ``target`` holds files, NotFoundError when the run wrote
        no such weights.
        """
        folder = empty_folder(target)
        source = self.merged if merged or self.adapter is None else self.adapter
        if source is None or not source.is_dir():
            raise NotFoundError(
                f"the run holds no weights of policy '{self.name}' yet; they are written when it "
                "succeeds, and `troupe export` writes those of a checkpoint"
            )
        shutil.copytree(source, folder, dirs_exist_ok=True)
        return folder


class RunResults:
    """What a run folder holds.

    Example: ``RunResults(Path("runs/demo-1")).plot().savefig("curve.png")``.
    """

    def __init__(self, folder: Path) -> None:
        """Raises NotFoundError when ``folder`` is not a run folder."""
        if not (folder / "spec.json").is_file():
            raise NotFoundError(
                f"{folder} is not a run folder (there is no spec.json in it); `troupe jobs` lists "
                "those of a runs folder"
            )
        self.folder = folder.resolve()

    def __repr__(self) -> str:
        summary = self.summary
        state, steps = summary.get("state", "not ended"), summary.get("steps", "?")
        return f"<RunResults {self.folder}: {state}, {steps} steps>"

    @property
    def job_id(self) -> str:
        """The job's id: the folder's name."""
        return self.folder.name

    @property
    def summary(self) -> dict[str, Any]:
        """``summary.json``; empty while the job runs."""
        return summary_of(self.folder)

    @property
    def metrics(self) -> list[dict[str, Any]]:
        """Lines of metrics.jsonl in their order: of steps (kind train) and evaluations (eval)."""
        return list(whole_lines(self.folder / "metrics.jsonl"))

    @property
    def evaluations(self) -> list[dict[str, Any]]:
        """Held-out evaluations: step, success (a share), reward_mean (of an episode), num_tasks."""
        return [line for line in self.metrics if line["kind"] == "eval"]

    def episodes(
        self,
        *,
        failed: bool | None = None,
        kind: str | None = None,
        step: int | None = None,
        limit: int = 100,
    ) -> list[RecordedEpisode]:
        """Recorded episodes, oldest first, at most ``limit``.

        ``failed``: True for those not solved, False for the others; ``kind``: train or eval;
        ``step``: of that step alone. Raises InvalidArgumentError for another filter.
        """
        check_filters(failed, kind, step, limit)
        chosen: list[RecordedEpisode] = []
        for line in whole_lines(self.folder / "episodes.jsonl"):
            is_wanted = (
                (failed is None or failed is not bool(line["is_success"]))
                and kind in (None, line["kind"])
                and step in (None, line["step"])
                and not line.get("dropped_reason")
            )
            if is_wanted:
                chosen.append(RecordedEpisode(line))
            if len(chosen) >= limit:
                break
        return chosen

    @property
    def policies(self) -> Mapping[str, TrainedPolicy]:
        """Trained policies by name."""
        spec = read_object(self.folder / "spec.json")
        return {name: self._policy(name) for name in spec.get("policies") or {}}

    def _policy(self, name: str) -> LocalPolicy:
        folder = self.folder / "policies" / name
        adapter, merged = folder / "adapter", folder / "merged"
        return LocalPolicy(
            name, adapter if adapter.is_dir() else None, merged if merged.is_dir() else None
        )

    def plot(self) -> Any:
        """Success, reward by agent and phases over the steps: the Figure of ``curve.png``.

        Raises InvalidArgumentError where matplotlib is not installed.
        """
        return figure(self.folder)


def check_filters(failed: bool | None, kind: str | None, step: int | None, limit: int) -> None:
    """Raise InvalidArgumentError for filters of ``episodes`` that nothing can match."""
    accepted: dict[str, tuple[object, bool, str]] = {
        "failed": (failed, failed in (None, True, False), "True, False or None"),
        "kind": (kind, kind in (None, *get_args(EpisodeKind)), "'train', 'eval' or None"),
        "step": (step, step is None or _is_from(0, step), "the number of a step, or None"),
        "limit": (limit, _is_from(1, limit), "a number from 1 on"),
    }
    for name, (value, is_accepted, form) in accepted.items():
        if not is_accepted:
            raise InvalidArgumentError(f"{name} is {value!r}; give {form}")


def _is_from(least: int, value: object) -> bool:
    return isinstance(value, Integral) and int(value) >= least


def empty_folder(target: str | Path) -> Path:
    """``target``, to be written; raises InvalidArgumentError when it holds files, or is one."""
    folder = Path(target).expanduser()
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        held = "holds files" if folder.is_dir() else "is a file"
        raise InvalidArgumentError(f"{folder} {held}; give another folder")
    return folder


def open_run(folder: str | Path) -> RunResults:
    """The results in a run folder; raises NotFoundError when it is none."""
    return RunResults(Path(folder).expanduser())
