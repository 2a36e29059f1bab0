"""The results of a run on another machine, read over REST.

Curves are written to a folder of this object's own, which goes with it, so that everything that
reads a run folder works; episodes and weights come when they are asked for.
"""

import json
import shutil
import tarfile
import tempfile
import time
import weakref
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from troupe.clients.rest import RestClient
from troupe.clients.rest.models.checkpoints import CheckpointFormat
from troupe.clients.rest.models.episode_tree import EpisodeDocument, GroupDocument
from troupe.clients.rest.models.metrics import SeriesDocument
from troupe.episodes.lines import Line
from troupe.errors import NotFoundError, UnavailableError
from troupe.training.results import (
    RecordedEpisode,
    RunResults,
    TrainedPolicy,
    check_filters,
    empty_folder,
)

_PAGE = 1000
_CATCH_UP_S, _CATCH_UP_PAUSE_S = 60.0, 0.2
"""How long episodes are waited for that the router has not indexed yet, asked every so often."""
_MAX_POINTS = 100_000


class RemoteResults(RunResults):
    """``RunResults`` of a job of another machine; ``refresh`` reads its curves again.

    Example: ``troupe.connect("https://troupe.example").open_run("summaries-1").plot()``.
    """

    def __init__(self, client: RestClient, job_id: str) -> None:
        """Raises NotFoundError when there is no such job."""
        self._client = client
        spec = client.job(job_id).spec or {}
        scratch = tempfile.mkdtemp(prefix="troupe-")
        weakref.finalize(self, shutil.rmtree, scratch, ignore_errors=True)
        folder = Path(scratch) / job_id
        folder.mkdir()
        (folder / "spec.json").write_text(json.dumps(spec), "utf-8")
        super().__init__(folder)
        self.refresh()

    def refresh(self) -> None:
        """Read state and curves of the job as they are now."""
        job = self._client.job(self.job_id)
        state = {"state": job.state, "steps": job.step}
        (self.folder / "summary.json").write_text(json.dumps(state), "utf-8")
        lines = [*self._steps(), *self._evaluations()]
        text = "".join(json.dumps(line) + "\n" for line in lines)
        (self.folder / "metrics.jsonl").write_text(text, "utf-8")

    def _steps(self) -> list[dict[str, Any]]:
        """Lines of training steps, oldest first."""
        lines: list[dict[str, Any]] = []
        cursor: str | None = None
        while True:
            page = self._client.steps(self.job_id, limit=_PAGE, cursor=cursor)
            lines += page.steps
            cursor = page.next_cursor
            if cursor is None:
                return lines[::-1]

    def _evaluations(self) -> Iterator[dict[str, Any]]:
        found: SeriesDocument = self._client.metrics(self.job_id, max_points=_MAX_POINTS).eval
        for place, step in enumerate(found.steps):
            values = {name: series[place] for name, series in found.series.items()}
            yield {"kind": "eval", "step": step, **_as_in_a_line(values)}

    def episodes(
        self,
        *,
        failed: bool | None = None,
        kind: str | None = None,
        step: int | None = None,
        limit: int = 100,
    ) -> list[RecordedEpisode]:
        """Recorded episodes, oldest first, at most ``limit``: one request each.

        The router's index is waited for while it grows. Raises UnavailableError when it has none
        after ``_CATCH_UP_S``, and InvalidArgumentError as ``RunResults`` does.
        """
        check_filters(failed, kind, step, limit)
        filters: dict[str, Any] = {"kind": kind, "step": step, "order": "oldest"}
        filters["failure"] = {None: None, True: "any", False: "none"}[failed]
        asked = {name: value for name, value in filters.items() if value is not None}
        trees = (self._client.episode(self.job_id, name) for name in self._names(limit, asked))
        return [RecordedEpisode(_line(tree)) for tree in trees]

    def _names(self, limit: int, asked: Mapping[str, Any]) -> list[str]:
        """Ids of the first ``limit`` episodes that were not dropped."""
        names: list[str] = []
        cursor, by, num_found = None, time.monotonic() + _CATCH_UP_S, 0
        while True:
            size = min(limit, _PAGE)
            page = self._client.episodes(self.job_id, limit=size, cursor=cursor, **asked)
            found = [*names, *(row.id for row in page.episodes if not row.dropped_reason)]
            if len(found) >= limit or (page.next_cursor is None and page.is_complete):
                return found[:limit]
            if page.next_cursor is not None:
                names, cursor = found, page.next_cursor
                continue
            # The index grows at its end, so the same page is asked for until it is full.
            if len(found) > num_found:
                num_found, by = len(found), time.monotonic() + _CATCH_UP_S
            elif time.monotonic() > by and found:
                return found  # an index that can't be written, as on a full disk, stays as it is
            elif time.monotonic() > by:
                raise UnavailableError(
                    f"the router has indexed no such episode of {self.job_id} within "
                    f"{_CATCH_UP_S:g} s, and has not read all of them; ask again"
                )
            time.sleep(_CATCH_UP_PAUSE_S)

    @property
    def policies(self) -> Mapping[str, TrainedPolicy]:
        """Trained policies by name; ``save`` downloads one."""
        spec = json.loads((self.folder / "spec.json").read_text("utf-8"))
        return {name: RemotePolicy(name, self._client, self.job_id) for name in spec["policies"]}


@dataclass(frozen=True, slots=True)
class RemotePolicy:
    """A ``TrainedPolicy`` on another machine."""

    name: str
    client: RestClient
    job_id: str

    def save(self, target: str | Path, *, merged: bool = False) -> Path:
        """Download the adapter to the folder ``target``, or the whole model with ``merged``.

        Raises InvalidArgumentError when ``target`` holds files, NotFoundError when the run has no
        such weights yet.
        """
        folder = empty_folder(target)
        checkpoint, format_ = self._newest(merged=merged)
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="troupe-") as scratch:
            archive = Path(scratch) / "weights.tar"
            self.client.download(self.job_id, checkpoint, self.name, archive, format=format_)
            _unpack_files(archive, folder)
        return folder

    def _newest(self, *, merged: bool) -> tuple[str, CheckpointFormat]:
        """The newest checkpoint with the weights, and their format."""
        offered = [
            (checkpoint.id, policy.formats)
            for checkpoint in self.client.checkpoints(self.job_id)
            for policy in checkpoint.policies
            if policy.policy == self.name
        ]
        wanted: tuple[CheckpointFormat, ...] = ("merged",) if merged else ("peft", "merged")
        for format_ in wanted:
            for checkpoint, formats in offered:
                if format_ in formats:
                    return checkpoint, format_
        raise NotFoundError(
            f"job {self.job_id} holds no {' or '.join(wanted)} weights of policy '{self.name}' "
            "yet; whole models are written when it succeeds"
        )


def _as_in_a_line(values: Mapping[str, float | None]) -> dict[str, Any]:
    """Numbers by dotted name as a line of metrics.jsonl: with mappings, and counts as integers."""
    line: dict[str, Any] = {}
    for name, value in values.items():
        outer, dot, inner = name.partition(".")
        if not dot:
            line[name] = int(value) if value is not None and name.startswith("num_") else value
        elif value is not None:
            line.setdefault(outer, {})[inner] = value
    return line


def _unpack_files(archive: Path, folder: Path) -> None:
    """The files of a router's archive, which has one folder, by their names alone."""
    with tarfile.open(archive) as tar:
        for member in tar:
            source = tar.extractfile(member)
            if source is not None:
                with source, (folder / Path(member.name).name).open("wb") as file:
                    shutil.copyfileobj(source, file)


def _line(tree: EpisodeDocument) -> Line:
    """An episode of REST as the line of episodes.jsonl that it was read from."""
    groups = [_group(group) for turn in tree.turns for group in turn.groups]
    return {**tree.model_dump(exclude={"turns", "others", "task", "agents"}), "groups": groups}


def _group(group: GroupDocument) -> dict[str, Any]:
    document = group.model_dump()
    for candidate in document["candidates"]:
        parts = candidate.pop("reward_parts")
        candidate["local_rewards"] = {p["term"]: p["value"] for p in parts if p["term"] != "team"}
    for timed in (document, *document["candidates"]):
        for name in ("generate_s", "env_s"):
            if timed[name] is None:
                del timed[name]
    return document
