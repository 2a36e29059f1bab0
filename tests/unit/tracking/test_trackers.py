"""Trackers that need no server: values, csv, TensorBoard, W&B offline."""

import csv
import gzip
import json
import math
import threading
import time
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest

from troupe import plugins
from troupe.errors import InvalidArgumentError, UnavailableError
from troupe.runtime.tracking.csv import CsvTracker
from troupe.runtime.tracking.mlflow import MlflowTracker
from troupe.runtime.tracking.options import tracker_issues
from troupe.runtime.tracking.tracker import TrackedRun
from troupe.runtime.tracking.values import tracked_step, tracked_values
from troupe.spec import JobSpec, parse_spec

LINE = {
    "kind": "train",
    "step": 2,
    "loss": 0.5,
    "entropy": None,
    "grad_norm": math.nan,
    "interrupted": True,
    "phases": {"learn": 1.25},
    "reward_by_agent": {"tool": 1},
    "by_policy": {"p": {"loss": 0.25}},
}


def run(folder: Path, **more: Any) -> TrackedRun:
    given: dict[str, Any] = {"config": {"name": "demo", "seed": 1}, "options": {}, **more}
    return TrackedRun("demo-1", "demo", folder, **given)


def test_values_when_a_line_is_flattened_then_only_finite_numbers_stay() -> None:
    assert tracked_values(LINE) == {
        "train/loss": 0.5,
        "train/interrupted": 1.0,
        "time/learn": 1.25,
        "reward/tool": 1.0,
        "policy/p/loss": 0.25,
    }


def test_step_when_training_or_evaluating_then_counts_steps_done() -> None:
    assert tracked_step(LINE) == 3
    assert tracked_step({"kind": "eval", "step": 3}) == 3


@pytest.mark.parametrize("name", ["csv", "mlflow", "tensorboard", "wandb"])
def test_tracker_when_named_in_a_spec_then_is_found(name: str) -> None:
    assert plugins.load(plugins.TRACKERS, name).__name__.lower().startswith(name)


def test_csv_when_the_job_is_resumed_then_the_table_goes_on(tmp_path: Path) -> None:
    first = CsvTracker(run(tmp_path))
    first.log(1, {"train/loss": 0.5})
    first.close("")
    second = CsvTracker(run(tmp_path, resumes=True))
    second.log(2, {"train/loss": 0.25, "eval/success": 1.0})
    second.close("succeeded")
    with (tmp_path / "tracking.csv").open() as file:
        rows = list(csv.reader(file))
    assert rows == [
        ["step", "name", "value"],
        ["1", "train/loss", "0.5"],
        ["2", "train/loss", "0.25"],
        ["2", "eval/success", "1.0"],
    ]


@pytest.mark.parametrize("kind", plugins.registered(plugins.TRACKERS))
def test_tracker_when_an_option_is_unknown_then_the_spec_is_refused_at_its_place(kind: str) -> None:
    """Every registered tracker, also one that another package brings."""
    [issue] = tracker_issues(spec({"kind": kind, "options": {"colour": "red"}}))
    assert issue.pointer == "/trackers/0/options/colour"


@pytest.mark.parametrize(
    ("kind", "options", "pointer"),
    [
        ("wandb", {"mode": "sometimes"}, "/options/mode"),
        ("wandb", {"tags": "one"}, "/options/tags"),
        ("wandb", {"entitiy": "a"}, "/options/entitiy"),
        ("mlflow", {"tracking_uri": 3}, "/options/tracking_uri"),
        ("tensorboard", {"logdir": ["a"]}, "/options/logdir"),
        (f"{__name__}:Bare", {"any": 1}, "/options"),
        ("nothing", {}, "/kind"),
    ],
)
def test_tracker_when_an_option_does_not_fit_its_model_then_is_refused(
    kind: str, options: dict[str, Any], pointer: str
) -> None:
    [issue] = tracker_issues(spec({"kind": "csv"}, {"kind": kind, "options": options}))
    assert issue.pointer == f"/trackers/1{pointer}"


def test_tracker_when_its_options_fit_then_passes() -> None:
    fitting = [
        {"kind": "csv"},
        {"kind": "tensorboard", "options": {"logdir": "a/b"}},
        {"kind": "wandb", "options": {"mode": "offline", "tags": ["a", "b"]}},
        {"kind": "mlflow", "options": {"tracking_uri": "http://h:5000"}},
        {"kind": f"{__name__}:Bare"},
    ]
    assert tracker_issues(spec(*fitting)) == []


def test_mlflow_when_its_address_is_no_servers_then_says_what_to_set(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError, match="MLFLOW_TRACKING_URI"):
        MlflowTracker(run(tmp_path, options={"tracking_uri": "file:///x"}))


class Bare:
    """A tracker of a plug-in, without options."""

    def __init__(self, run: TrackedRun) -> None:
        self.run = run

    def log(self, step: int, values: dict[str, float]) -> None: ...

    def close(self, state: str) -> None: ...


def spec(*trackers: dict[str, Any]) -> JobSpec:
    return parse_spec(
        {
            "name": "t",
            "steps": 1,
            "task": {"name": "plan_path"},
            "workflow": {"order": ["tool", "planner"]},
            "agents": {"tool": {"policy": "p"}, "planner": {"policy": "p"}},
            "policies": {"p": {"model": "m"}},
            "trackers": list(trackers),
        }
    )


@pytest.mark.parametrize("logdir", ["/tmp/elsewhere", "../other", "a/../../b"])
def test_tensorboard_when_its_folder_is_outside_the_run_then_refuses(
    tmp_path: Path, logdir: str
) -> None:
    pytest.importorskip("tensorboard")
    with pytest.raises(InvalidArgumentError, match="inside the run folder only"):
        plugins.load(plugins.TRACKERS, "tensorboard")(run(tmp_path, options={"logdir": logdir}))


class _Mlflow(BaseHTTPRequestHandler):
    """Answers what begins a run, and notes who asks."""

    seen: list[str | None]

    def _answer(self) -> None:
        self.seen.append(self.headers["Authorization"])
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        body = b'{"experiment": {"experiment_id": "1"}, "run": {"info": {"run_id": "r"}}}'
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_POST = _answer

    def log_message(self, format: str, *args: Any) -> None:
        _ = format, args


@pytest.mark.parametrize(("is_set", "sent"), [(True, "Bearer secret"), (False, None)])
def test_mlflow_when_the_spec_names_another_address_then_gets_no_credentials(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_set: bool, sent: str | None
) -> None:
    handler = type("Handler", (_Mlflow,), {"seen": []})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        uri = f"http://127.0.0.1:{server.server_port}"
        monkeypatch.setenv("MLFLOW_TRACKING_URI", uri if is_set else "http://ours:5000")
        monkeypatch.setenv("MLFLOW_TRACKING_TOKEN", "secret")
        MlflowTracker(run(tmp_path, options={"tracking_uri": f"{uri}/"})).close("succeeded")
        server.shutdown()
    assert handler.seen and set(handler.seen) == {sent}


@pytest.mark.parametrize("more", ["/latest/meta-data?x=", "/any#"])
def test_mlflow_when_the_address_swallows_the_path_then_nothing_is_asked(
    tmp_path: Path, more: str
) -> None:
    with pytest.raises(InvalidArgumentError, match="a query or a fragment"):
        MlflowTracker(run(tmp_path, options={"tracking_uri": f"http://127.0.0.1:1{more}"}))


def test_mlflow_when_the_address_lends_credentials_then_nothing_is_asked(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError, match="metadata addresses"):
        MlflowTracker(run(tmp_path, options={"tracking_uri": "http://169.254.169.254"}))


def test_mlflow_when_the_server_refuses_then_its_words_are_not_repeated(tmp_path: Path) -> None:
    class Refusing(_Mlflow):
        seen: ClassVar[list[str | None]] = []

        def do_GET(self) -> None:
            self.send_error(403, "INNER-SECRET")

    with ThreadingHTTPServer(("127.0.0.1", 0), Refusing) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        uri = f"http://127.0.0.1:{server.server_port}"
        with pytest.raises(UnavailableError, match="answered 403") as caught:
            MlflowTracker(run(tmp_path, options={"tracking_uri": uri}))
        server.shutdown()
    assert "INNER" not in str(caught.value)


def test_mlflow_when_the_experiment_is_not_there_then_is_made(tmp_path: Path) -> None:
    class Empty(_Mlflow):
        seen: ClassVar[list[str | None]] = []

        def do_GET(self) -> None:
            self.send_error(404)

        def do_POST(self) -> None:
            self.seen.append(self.path.rpartition("2.0/mlflow/")[2])
            body = b'{"experiment_id": "1", "run": {"info": {"run_id": "r"}}}'
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(200)
            self.end_headers()
            self.wfile.write(body)

    with ThreadingHTTPServer(("127.0.0.1", 0), Empty) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        uri = f"http://127.0.0.1:{server.server_port}"
        MlflowTracker(run(tmp_path, options={"tracking_uri": uri}))
        server.shutdown()
    assert Empty.seen == ["experiments/create", "runs/search", "runs/create"]


def test_mlflow_when_the_spec_is_refused_then_one_run_has_every_line(tmp_path: Path) -> None:
    class Picky(_Mlflow):
        begun: ClassVar[list[tuple[str, list[str]]]] = []
        sought: ClassVar[list[str]] = []
        steps: ClassVar[list[int]] = []

        def do_GET(self) -> None:
            self._say(200, b'{"experiment": {"experiment_id": "1"}}')

        def do_POST(self) -> None:
            sent = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            self.steps.extend(point["step"] for point in sent.get("metrics", ()))
            if self.path.endswith("runs/create"):
                self.begun.append((sent["run_name"], [tag["value"] for tag in sent["tags"]]))
            if self.path.endswith("runs/search"):
                self.sought.append(sent["filter"])
            self._say(400 if "params" in sent else 200, b'{"run": {"info": {"run_id": "r"}}}')

        def _say(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.end_headers()
            self.wfile.write(body)

    with ThreadingHTTPServer(("127.0.0.1", 0), Picky) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        uri = f"http://127.0.0.1:{server.server_port}"
        tracker = MlflowTracker(run(tmp_path, options={"tracking_uri": uri}, unique_id="demo-1-a"))
        with pytest.raises(UnavailableError, match="answered 400"):
            tracker.log(1, {"train/loss": 0.5})
        tracker.log(2, {"train/loss": 0.25})
        tracker.close("succeeded")
        server.shutdown()
    assert (Picky.begun, Picky.steps) == ([("demo-1", ["demo-1-a", "demo-1"])], [1, 2])
    assert Picky.sought == ["tags.`troupe.unique_id` = 'demo-1-a'"]


@pytest.mark.parametrize(
    ("body", "encoding", "why"),
    [
        (gzip.compress(bytes(16 << 20)), "gzip", "in a compressed form"),
        (bytes(2 << 20), "identity", "more than 1048576 bytes"),
    ],
)
def test_mlflow_when_the_answer_may_be_of_any_size_then_is_not_taken(
    tmp_path: Path, body: bytes, encoding: str, why: str
) -> None:
    class Endless(_Mlflow):
        seen: ClassVar[list[str | None]] = []

        def do_GET(self) -> None:
            self.seen.append(self.headers["Accept-Encoding"])
            self.send_response(200)
            self.send_header("Content-Encoding", encoding)
            self.end_headers()
            with suppress(ConnectionError):
                self.wfile.write(body)

    with ThreadingHTTPServer(("127.0.0.1", 0), Endless) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        uri = f"http://127.0.0.1:{server.server_port}"
        with pytest.raises(UnavailableError, match=why):
            MlflowTracker(run(tmp_path, options={"tracking_uri": uri}))
        server.shutdown()
    assert Endless.seen == ["identity"]


def test_tensorboard_when_written_then_its_own_reader_finds_curve_and_spec(tmp_path: Path) -> None:
    reader = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    tracker = plugins.load(plugins.TRACKERS, "tensorboard")(run(tmp_path))
    tracker.log(1, {"train/loss": 0.5})
    tracker.log(2, {"train/loss": 0.25})
    tracker.close("succeeded")
    found = reader.EventAccumulator(str(tmp_path / "tensorboard"))
    found.Reload()
    assert [(p.step, p.value) for p in found.Scalars("train/loss")] == [(1, 0.5), (2, 0.25)]
    text = found.Tensors("spec")[0].tensor_proto.string_val[0].decode()
    assert json.loads(text.removeprefix("```json\n").removesuffix("\n```"))["seed"] == 1


def test_wandb_when_two_jobs_are_tracked_then_each_has_its_own_run(tmp_path: Path) -> None:
    pytest.importorskip("wandb")
    ids = ("demo-1-a", "demo-1-b")  # of one name, on two platforms that share a project
    make = plugins.load(plugins.TRACKERS, "wandb")
    runs = [run(tmp_path / i, options={"mode": "offline"}, unique_id=i) for i in ids]
    for tracker in [make(each) for each in runs]:
        tracker.close("succeeded")
    written = {path.name for path in tmp_path.glob("*/wandb/offline-run-*/run-*.wandb")}
    assert written == {f"run-{i}.wandb" for i in ids}


def test_wandb_when_offline_then_leaves_a_run_with_its_history(tmp_path: Path) -> None:
    pytest.importorskip("wandb")
    options = {"mode": "offline"}
    tracker = plugins.load(plugins.TRACKERS, "wandb")(run(tmp_path, options=options))
    tracker.log(1, {"train/loss": 0.5})
    tracker.close("succeeded")
    # W&B's own process writes the file, and flushes it when it gets to it.
    [file] = (tmp_path / "wandb").glob("offline-run-*/run-demo-1.wandb")
    deadline = time.monotonic() + 60
    while b"train/loss" not in file.read_bytes() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert b"train/loss" in file.read_bytes()
