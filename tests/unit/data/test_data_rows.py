"""Reading published files: every format, streamed, and what is damaged is named."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from troupe.data.rows import format_of, read_rows
from troupe.errors import InvalidArgumentError, NotFoundError

ROWS: list[dict[str, Any]] = [
    {"id": 1, "text": "one", "tags": ["a", "b"]},
    {"id": 2, "text": "zwei ü ✓", "tags": ["c"]},
]
LINES = "".join(json.dumps(row) + "\n" for row in ROWS)


def _written(path: Path) -> Path:
    if path.name.endswith(".gz"):
        path.write_bytes(gzip.compress(LINES.encode()))
    elif path.suffix == ".jsonl":
        path.write_text(LINES + "\n")
    elif path.suffix == ".json":
        path.write_text(json.dumps(ROWS))
    return path


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz", "a.json", "A.JSONL"])
def test_read_rows_on_json_formats_then_gives_all_rows(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    _written(path) if not name.isupper() else path.write_text(LINES)
    assert list(read_rows(path)) == ROWS


@pytest.mark.parametrize(
    "content", [LINES, json.dumps({"version": 1, "data": ROWS}), json.dumps(ROWS, indent=1)]
)
def test_read_rows_on_json_of_each_shape_then_gives_all_rows(tmp_path: Path, content: str) -> None:
    path = tmp_path / "a.json"
    path.write_text(content)
    assert list(read_rows(path)) == ROWS


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.jsonl", LINES),
        ("a.jsonl.gz", LINES),
        ("a.json", LINES),
        ("a.json", json.dumps(ROWS)),
    ],
)
def test_read_rows_when_a_byte_order_mark_comes_first_then_it_is_no_damage(
    tmp_path: Path, name: str, content: str
) -> None:
    path = tmp_path / name
    data = content.encode("utf-8-sig")
    path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    assert list(read_rows(path)) == ROWS


def test_read_rows_on_one_object_then_is_one_row(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text(json.dumps(ROWS[0], indent=2))
    assert list(read_rows(path)) == ROWS[:1]


@pytest.mark.parametrize(
    "row",
    [
        {"prompt": [{"role": "user", "content": "2 + 2"}], "answer": "4"},
        {"question": "Which?", "options": [{"label": "A"}, {"label": "B"}], "answer": "A"},
        {"text": "a", "marks": [{"at": 1}], "notes": [{"by": "b"}]},
    ],
)
def test_read_rows_on_one_object_with_a_list_of_its_own_then_is_one_row(
    tmp_path: Path, row: dict[str, Any]
) -> None:
    path = tmp_path / "a.json"
    path.write_text(json.dumps(row))
    assert list(read_rows(path)) == [row]


def test_read_rows_on_one_list_beside_what_describes_it_then_gives_the_list(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text(json.dumps({"version": 1, "info": {"by": "b"}, "data": ROWS}))
    assert list(read_rows(path)) == ROWS


def test_read_rows_on_csv_with_unnamed_columns_then_gives_the_named_ones(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("question,answer,,\n1,3,,\n")
    assert list(read_rows(path)) == [{"question": "1", "answer": "3", "": ""}]


def test_read_rows_on_columnar_files_with_repeated_names_then_says_which(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    table = pa.Table.from_arrays([pa.array(["a"]), pa.array(["b"])], names=["text", "text"])
    parquet.write_table(table, tmp_path / "a.parquet")
    with pa.ipc.new_stream(tmp_path / "a.arrow", table.schema) as writer:
        writer.write_table(table)
    for name in ("a.parquet", "a.arrow"):
        with pytest.raises(InvalidArgumentError, match="several columns called 'text'"):
            list(read_rows(tmp_path / name))


def test_read_rows_on_csv_then_gives_texts(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text('question,answer\n"1, or\n2?",3\n')
    assert list(read_rows(path)) == [{"question": "1, or\n2?", "answer": "3"}]


def test_read_rows_on_parquet_and_saved_folders_then_gives_all_rows(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    table = pa.Table.from_pylist(ROWS)
    parquet.write_table(table, tmp_path / "a.parquet")
    assert list(read_rows(tmp_path / "a.parquet")) == ROWS
    folder = tmp_path / "saved"
    folder.mkdir()
    with pa.ipc.new_stream(folder / "data-00000-of-00001.arrow", table.schema) as writer:
        writer.write_table(table)
    (folder / "state.json").write_text(
        json.dumps({"_data_files": [{"filename": "data-00000-of-00001.arrow"}]})
    )
    assert list(read_rows(folder)) == ROWS


def test_read_rows_when_rows_are_many_then_reads_only_what_is_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(LINES * 1000 + "damaged\n")
    rows = read_rows(path)
    assert [next(rows)["id"] for _ in range(4)] == [1, 2, 1, 2]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.jsonl", '{"a": 1}\n{"a"\n', "line 2: not JSON"),
        ("a.jsonl", "[1]\n", "line 1: a row must be a JSON object, not list"),
        ("a.jsonl", "[" * 100_000 + "\n", "line 1: not JSON"),
        ("a.jsonl.gz", "not gzip", "damaged"),
        ("a.json", "{", "not JSON"),
        ("a.json", "[1, 2]", "item 1"),
        ("a.csv", "a,b\n1\n", "line 2: more or fewer fields"),
        ("a.csv", "a,b,a\n1,2,3\n", "several columns called 'a'"),
        ("a.parquet", "no", "not Parquet"),
        ("a.arrow", "no", "not an Arrow stream"),
        ("a.pkl", "no", "not read here"),
    ],
)
def test_read_rows_when_the_file_is_damaged_then_says_where(
    tmp_path: Path, name: str, content: str, message: str
) -> None:
    path = tmp_path / name
    path.write_text(content)
    with pytest.raises(InvalidArgumentError, match=message):
        list(read_rows(path))


def test_read_rows_when_there_is_nothing_or_a_plain_folder_then_says_what_to_give(
    tmp_path: Path,
) -> None:
    with pytest.raises(NotFoundError, match="does not exist"):
        read_rows(tmp_path / "none.jsonl")
    with pytest.raises(InvalidArgumentError, match="give one of the files"):
        read_rows(tmp_path)
    (tmp_path / "dataset_dict.json").write_text("{}")
    with pytest.raises(InvalidArgumentError, match="several splits"):
        read_rows(tmp_path)


def test_format_of_when_the_ending_is_unknown_then_is_none() -> None:
    assert format_of(Path("x.jsonl.gz")) == ".jsonl.gz"
    assert format_of(Path("x.bin")) is None
