"""Episodes of a run on another machine, read page by page from a router that is a list."""

import re
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from run_folders import spec_document

from troupe.api.records.v1 import records_pb2 as pb
from troupe.clients.rest import RestClient
from troupe.episodes.lines import Line, episode_line
from troupe.errors import InvalidArgumentError, UnavailableError
from troupe.spec import parse_spec
from troupe.training import remote_results
from troupe.training.remote_results import RemoteResults
from troupe.training.results import RecordedEpisode, RunResults, open_run
from troupe_router.run.episode_tree import episode_turns
from troupe_router.run.series import flatten, metrics_document

SPEC = parse_spec(spec_document("m"))


class Tree:
    def __init__(self, name: str, line: Line | None = None) -> None:
        self.line = {**(line or {}), "episode_id": name}
        self.turns = episode_turns(line, SPEC, None, {}) if line else ()

    def model_dump(self, *, exclude: object) -> Mapping[str, Any]:
        return {name: value for name, value in self.line.items() if name != "groups"}


class Router:
    """Holds 2,500 episodes, of which each tenth was dropped; indexes more with each page."""

    def __init__(self, num_indexed: int, per_page: int) -> None:
        self.num_indexed, self.per_page = num_indexed, per_page
        self.evaluations: list[dict[str, Any]] = []
        self.line: Line | None = None

    def job(self, job_id: str) -> Any:
        return SimpleNamespace(spec={}, state="running", step=1)

    def steps(self, job_id: str, **page: Any) -> Any:
        return SimpleNamespace(steps=[], next_cursor=None)

    def metrics(self, job_id: str, **more: Any) -> Any:
        points = [("eval", line["step"], flatten(line)) for line in self.evaluations]
        return metrics_document(job_id, points, names=(), from_step=0, max_points=1000)

    def episodes(self, job_id: str, *, limit: int, cursor: str | None, order: str) -> Any:
        assert limit <= 1000
        self.num_indexed = min(2500, self.num_indexed + self.per_page)
        first = int(cursor or 0)
        end = min(first + limit, self.num_indexed)
        reasons = {number: None if number % 10 else "lost" for number in range(first, end)}
        return SimpleNamespace(
            episodes=[SimpleNamespace(id=str(n), dropped_reason=why) for n, why in reasons.items()],
            next_cursor=str(end) if end < self.num_indexed else None,
            is_complete=self.num_indexed == 2500,
        )

    def episode(self, job_id: str, name: str) -> Tree:
        return Tree(name, self.line)


def ids(router: Router, limit: int) -> list[int]:
    results = RemoteResults(cast("RestClient", router), "demo-1")
    return [int(episode.id) for episode in results.episodes(limit=limit)]


@pytest.mark.parametrize("limit", [100, 2000, 3000])
def test_episodes_when_some_were_dropped_then_there_are_as_many_as_asked(limit: int) -> None:
    kept = [number for number in range(2500) if number % 10]
    assert ids(Router(2500, 0), limit) == kept[:limit]


def test_episodes_when_the_index_is_being_made_then_they_are_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(remote_results, "_CATCH_UP_PAUSE_S", 0.0)
    assert ids(Router(0, 70), 300) == [number for number in range(334) if number % 10]


def test_episodes_when_the_index_stands_still_then_there_are_those_that_it_has(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(remote_results, "_CATCH_UP_S", 0.0)
    monkeypatch.setattr(remote_results, "_CATCH_UP_PAUSE_S", 0.0)
    assert ids(Router(10, 0), 300) == list(range(1, 10))
    with pytest.raises(UnavailableError, match="has indexed no such episode of demo-1"):
        ids(Router(0, 0), 300)


def times(episode: RecordedEpisode) -> list[str]:
    return re.findall("answered in .*", str(episode))


@pytest.mark.parametrize("key", [pb.GROUP_KEY_UNSPECIFIED, pb.GROUP_KEY_TASK])
def test_episode_when_printed_then_its_times_are_those_of_the_run_folder(key: Any) -> None:
    group = pb.Group(group_id="g", agent="tool", policy="tool", key=key)
    group.prompts.add(digest="d")
    for index in range(2):
        group.candidates.add(index=index, prompt_digest="d", is_chosen=True)
        group.candidates[index].generate_s = 0.5 + index
        group.candidates[index].env_s = 0.25
    router = Router(2500, 0)
    router.line = episode_line(pb.Episode(groups=[group]))
    [shown] = RemoteResults(cast("RestClient", router), "demo-1").episodes(limit=1)
    assert times(shown) == times(RecordedEpisode(router.line))
    assert len(times(shown)) == 2
    # An earlier router gives none of single candidates.
    for timed in (router.line["groups"][0], *router.line["groups"][0]["candidates"]):
        timed.pop("generate_s", None)
    [shown] = RemoteResults(cast("RestClient", router), "demo-1").episodes(limit=1)
    assert times(shown) == []


@pytest.mark.parametrize(
    ("filters", "form"),
    [
        ({"limit": 0}, "limit is 0; give a number from 1 on"),
        ({"limit": None}, "limit is None"),
        ({"kind": "evaluation"}, "kind is 'evaluation'; give 'train', 'eval' or None"),
        ({"step": -1}, "step is -1"),
        ({"failed": "any"}, "failed is 'any'; give True, False or None"),
    ],
)
def test_episodes_when_a_filter_can_match_nothing_then_is_refused_here_and_there(
    filters: dict[str, Any], form: str, tmp_path: Path
) -> None:
    (tmp_path / "spec.json").write_text("{}")
    (tmp_path / "episodes.jsonl").write_text("")
    there = RemoteResults(cast("RestClient", Router(10, 0)), "demo-1")
    for results in (RunResults(tmp_path), there):
        with pytest.raises(InvalidArgumentError, match=form):
            results.episodes(**filters)


def test_evaluations_when_they_have_rewards_by_agent_then_they_are_as_in_a_run_folder() -> None:
    router = Router(0, 0)
    of_episodes = {"reward_by_agent": {"writer": -1.0, "editor": 0.5}, "num_tasks": 40}
    old = {"kind": "eval", "step": 0, "success": 1.0, "reward_mean": 0.25, "num_tasks": 40}
    new = {"kind": "eval", "step": 10, "success": None, "reward_mean": -0.25, **of_episodes}
    router.evaluations = [old, new]
    results = RemoteResults(cast("RestClient", router), "demo-1")
    assert results.evaluations == [old, new]
    assert [type(line["num_tasks"]) for line in results.evaluations] == [int, int]
    labels = [axes.get_ylabel() for axes in results.plot().axes]
    assert "reward of an episode, held out" in labels


def test_run_when_the_working_directory_changes_then_is_still_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "demo-1"
    run.mkdir()
    (run / "spec.json").write_text('{"policies": {"a": {}}}')
    monkeypatch.chdir(run)
    results = open_run(".")
    monkeypatch.chdir(tmp_path)
    assert results.job_id == "demo-1"
    assert list(results.policies) == ["a"]
