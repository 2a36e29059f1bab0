"""Files, cursors and answers from elsewhere: read, or refused in Troupe's own words."""

import base64
import contextlib
import gzip
import json
import math
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest
from fuzzing import bounded, fuzzed, hostile_texts, json_values, mutated_bytes, nested_json
from hypothesis import given
from hypothesis import strategies as st

from troupe.clients.rest import RestClient
from troupe.data.dataset import RefusedRowError
from troupe.data.prepare import _Writer
from troupe.data.prepared import PreparedRows
from troupe.data.registry import find_dataset, known_datasets
from troupe.data.rows import read_rows
from troupe.errors import InvalidArgumentError, TroupeError, WeightsRejectedError
from troupe.runtime.launch.records import load_record
from troupe.runtime.weights.layout import file_tensors, header_bytes_of, read_layout
from troupe.runtime.weights.manifest import adapter_scale
from troupe_router.run.episode_pages import EpisodeFilter, _decode
from troupe_tasks.code.problem import Problem

pyarrow = pytest.importorskip("pyarrow", reason="pyarrow reads Parquet and Arrow")

ROW = {"question": "What is 1 + 1?", "answer": "so\n#### 2", "n": 3}


def _parquet() -> bytes:
    import pyarrow.parquet as parquet

    sink = pyarrow.BufferOutputStream()
    parquet.write_table(pyarrow.Table.from_pylist([ROW, ROW]), sink)
    return sink.getvalue().to_pybytes()


def _arrow() -> bytes:
    table = pyarrow.Table.from_pylist([ROW, ROW])
    sink = pyarrow.BufferOutputStream()
    with pyarrow.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()


LINES = (json.dumps(ROW) + "\n").encode() * 3
FILES = {
    "rows.jsonl": LINES,
    "rows.jsonl.gz": gzip.compress(LINES, mtime=0),
    "rows.json": json.dumps({"data": [ROW, ROW]}).encode(),
    "rows.csv": b'question,answer\n"1 + 1, what?",2\nx,y\n',
    "rows.parquet": _parquet(),
    "rows.arrow": _arrow(),
}


@pytest.mark.parametrize("name", FILES)
def test_rows_when_any_bytes_then_read_or_refused(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    kept = FILES[name]

    @fuzzed(25)
    @given(mutated_bytes(st.just(kept)))
    def holds(data: bytes) -> None:
        path.write_bytes(data)
        with bounded():
            _read_or_refused(path)

    holds()


def _read_or_refused(path: Path) -> None:
    try:
        assert all(isinstance(row, dict) for row in read_rows(path))
    except InvalidArgumentError as error:
        assert path.name in error.message


@pytest.mark.parametrize("name", ["rows.arrow", "rows.parquet"])
@pytest.mark.parametrize("damage", [0x01, 0x7F])
def test_columns_when_one_byte_is_damaged_then_read_or_refused(
    name: str, damage: int, tmp_path: Path
) -> None:
    """Among these bytes are lengths, which ask for more memory than there is, and types."""
    path, kept = tmp_path / name, FILES[name]
    for at in range(len(kept)):
        path.write_bytes(kept[:at] + bytes([kept[at] ^ damage]) + kept[at + 1 :])
        _read_or_refused(path)


@pytest.mark.parametrize(
    "document",
    [b"1", b"null", b'"x"', b"[1]", b"{}", b'{"data": 1}', nested_json(5000, "list").encode()],
)
def test_rows_when_json_of_another_shape_then_refused_or_none(
    document: bytes, tmp_path: Path
) -> None:
    path = tmp_path / "rows.json"
    path.write_bytes(document)
    _read_or_refused(path)


@fuzzed(25)
@given(document=json_values())
def test_saved_folder_when_its_state_is_anything_then_read_or_refused(
    document: Any, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("saved")
    (folder / "state.json").write_text(json.dumps(document), "utf-8")
    try:
        assert list(read_rows(folder)) == []
    except InvalidArgumentError as error:
        assert folder.name in error.message


class DrawnRow(Mapping[str, Any]):
    """A row whose columns hold whatever is drawn when they are looked at."""

    def __init__(self, data: st.DataObject) -> None:
        self._data = data
        self._seen: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._seen:
            text = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
            self._seen[name] = self._data.draw(
                text | json_values(6) | json_values(6).map(json.dumps) | hostile_texts(), label=name
            )
        return self._seen[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._seen)

    def __len__(self) -> int:
        return len(self._seen)


@pytest.mark.parametrize("name", sorted(known_datasets()))
def test_published_row_when_of_any_shape_then_converted_or_counted_as_refused(name: str) -> None:
    dataset = find_dataset(name)

    @fuzzed(6)
    @given(st.data())
    def holds(data: st.DataObject) -> None:
        writer = _Writer(dataset, [], drop_overlap=False)
        with bounded(20.0):
            try:
                dataset.schema.model_validate(writer._convert(DrawnRow(data)).model_dump())
            except RefusedRowError as refused:
                assert refused.reason

    holds()


def test_prepared_rows_when_any_bytes_then_rows_or_refused(tmp_path: Path) -> None:
    path = tmp_path / "train.jsonl"
    problem = Problem(
        id="p",
        kind="stdin",
        statement="Print 3.",
        hidden_tests=({"input": "", "output": "3"},),
        split="train",
    )

    @fuzzed(30)
    @given(mutated_bytes(st.just(problem.model_dump_json().encode() + b"\n")))
    def holds(data: bytes) -> None:
        path.write_bytes(data)
        rows = PreparedRows(path, Problem)
        for index in range(len(rows)):
            with bounded():
                try:
                    assert isinstance(rows[index], Problem)
                except InvalidArgumentError as error:
                    assert path.name in error.message

    holds()


WEIGHTS = header_bytes_of([("a", "F32", (2, 2)), ("b", "BF16", (3,))]) + bytes(range(22))


def test_weights_file_when_any_bytes_then_laid_out_whole_or_rejected(tmp_path: Path) -> None:
    path = tmp_path / "w.safetensors"

    @fuzzed(25)
    @given(mutated_bytes(st.just(WEIGHTS)))
    def holds(data: bytes) -> None:
        path.write_bytes(data)
        with bounded():
            try:
                layout = read_layout(path)
            except WeightsRejectedError:
                return
            views = list(file_tensors(path))
        assert sum(len(view.data) for view in views) == sum(t.end - t.begin for t in layout)
        assert all(t.end <= len(data) for t in layout)

    holds()


@fuzzed(40)
@given(entry=json_values(), name=st.text(max_size=8))
def test_weights_header_when_any_json_then_laid_out_or_rejected(
    entry: Any, name: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("weights") / "w"
    header = json.dumps({name: entry}).encode()
    path.write_bytes(struct.pack("<Q", len(header)) + header)
    with bounded(), contextlib.suppress(WeightsRejectedError):
        assert [t.name for t in read_layout(path)] in ([], [name])


@fuzzed(40)
@given(json_values().map(json.dumps) | st.text(max_size=40))
def test_adapter_config_when_anything_then_a_scale_or_rejected(text: str) -> None:
    with contextlib.suppress(WeightsRejectedError):
        assert math.isfinite(adapter_scale(text))


@pytest.mark.parametrize(
    "text",
    [
        nested_json(100_000, "list"),
        '{"r": 1e999, "lora_alpha": 1}',
        '{"r": 1, "lora_alpha": 1e999}',
        '{"r": 1, "lora_alpha": 1' + "0" * 400 + "}",
        '{"r": "' + "9" * 5000 + '", "lora_alpha": 1}',
    ],
)
def test_adapter_config_when_hostile_then_rejected(text: str) -> None:
    with pytest.raises(WeightsRejectedError):
        adapter_scale(text)


@fuzzed(40)
@given(
    st.text(max_size=60)
    | json_values()
    .map(json.dumps)
    .map(lambda text: base64.urlsafe_b64encode(text.encode()).decode().rstrip("="))
)
def test_cursor_when_anything_then_a_place_or_refused(cursor: str) -> None:
    wanted = EpisodeFilter()
    try:
        _decode(cursor, wanted)
    except InvalidArgumentError as error:
        assert error.pointer == "/query/cursor"


@fuzzed(40)
@given(st.lists(st.text(max_size=30) | json_values().map(lambda v: "data: " + json.dumps(v))))
def test_event_stream_when_any_lines_then_events_or_an_error(lines: list[str]) -> None:
    text = "\n".join([*lines, "", ""])
    content = text.encode("utf-8", "replace")

    def handler(request: httpx.Request) -> httpx.Response:
        if request.url.path.endswith("/events"):
            headers = {"content-type": "text/event-stream"}
            return httpx.Response(200, content=content, headers=headers)
        return httpx.Response(200, json={"job_id": "j", "state": "succeeded"})

    rest = RestClient("http://router", transport=httpx.MockTransport(handler))
    with rest, contextlib.suppress(TroupeError):
        list(rest.events("j"))


@fuzzed(30)
@given(data=json_values().map(lambda v: json.dumps(v).encode()) | st.binary(max_size=80))
def test_process_record_when_any_bytes_then_none_or_a_record(
    data: bytes, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("records")
    (folder / "trainer-0.json").write_bytes(data)
    load_record(folder, "trainer-0")
