"""`troupe data prepare`: whole files, counts that add up, overlaps found, equal bytes again."""

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from troupe.cli.main import run
from troupe.data.dataset import Row
from troupe.data.manifest import Manifest, read_manifest
from troupe.data.prepare import Options, prepare
from troupe.data.prepared import PreparedRows, SplitRows
from troupe.data.registry import find_dataset
from troupe.data.sources import Source
from troupe.errors import InvalidArgumentError, NotFoundError
from troupe_tasks.math.family import Math, MathParams
from troupe_tasks.math.row import MathRow

GSM8K = find_dataset("gsm8k")
LONG = "A farmer has {} hens and each of them lays two eggs on every single day of the week"


def _row(question: str, answer: int | str) -> dict[str, Any]:
    return {"question": question, "answer": f"so\n#### {answer}"}


def _source(folder: Path, **splits: list[dict[str, Any]]) -> Source:
    folder.mkdir(exist_ok=True)
    for split, rows in splits.items():
        lines = "".join(json.dumps(row) + "\n" for row in rows)
        (folder / f"{split}.jsonl").write_text(lines)
    return Source(folder)


TRAIN = [
    _row("How many are 3 + 4 apples?", 7),
    _row("HOW many  are 3 + 4 apples?", 7),
    _row("How many are 3 - 4 apples?", -1),
    {"question": "no answer", "answer": "none"},
    {"question": "x" * 30_000, "answer": "#### 1"},
    _row("How many are 9 + 9 apples?", 18),
]
TEST = [_row("How many are 9+9 apples?", 18), _row("How many are 1 + 1 apples?", 2)]


def test_prepare_when_rows_are_refused_then_every_row_is_counted_once(tmp_path: Path) -> None:
    source = _source(tmp_path / "in", train=TRAIN, test=TEST)
    train = prepare(GSM8K, source, tmp_path, Options()).splits["train"]
    assert (train.num_read, train.num_written, train.num_dropped) == (6, 3, 0)
    assert train.refused == {"duplicate": 1, "no_final_answer": 1, "schema:problem": 1}
    written = [
        json.loads(line) for line in (tmp_path / "gsm8k/train.jsonl").read_text().splitlines()
    ]
    assert [row["answer"] for row in written] == ["7", "-1", "18"]
    assert set(written[0]) == {"id", "problem", "answer", "source"}


def test_prepare_when_rows_differ_in_a_sign_alone_then_none_is_a_duplicate(tmp_path: Path) -> None:
    source = _source(tmp_path / "in", train=[_row(f"What is 3 {sign} 4?", 1) for sign in "±÷&|"])
    assert not prepare(GSM8K, source, tmp_path, Options(("train",))).splits["train"].refused


def test_prepare_when_ids_differ_in_their_signs_then_they_are_not_equal(tmp_path: Path) -> None:
    def convert(row: Row) -> dict[str, Any]:
        return {**row, "answer": "1", "source": "s"}

    names = ("train_1.0", "train 1 0", "Train_1.0", "train_1.0")
    rows = [{"id": name, "problem": f"problem {n}"} for n, name in enumerate(names)]
    source = _source(tmp_path / "in", train=rows)
    dataset = replace(GSM8K, convert=convert)
    train = prepare(dataset, source, tmp_path, Options(("train",))).splits["train"]
    assert train.refused == {"duplicate_id": 1}


def test_prepare_when_train_meets_test_then_says_so_and_drops_it_when_asked(
    tmp_path: Path,
) -> None:
    source = _source(tmp_path / "in", train=TRAIN, test=TEST)
    kept = prepare(GSM8K, source, tmp_path, Options()).splits["train"]
    assert [(o.num_exact, o.num_ngram) for o in kept.overlaps] == [(1, 0)]
    assert kept.overlaps[0].against == "gsm8k/test.jsonl"
    dropped = prepare(GSM8K, source, tmp_path, Options(drop_overlap=True)).splits["train"]
    assert (dropped.num_written, dropped.num_dropped) == (2, 1)
    assert "18" not in {row.answer for row in PreparedRows(tmp_path / "gsm8k/train.jsonl", MathRow)}


def test_prepare_when_the_test_file_is_named_to_compare_with_then_it_loses_no_row(
    tmp_path: Path,
) -> None:
    source = _source(tmp_path / "in", train=TRAIN, test=TEST)
    test = tmp_path / "gsm8k/test.jsonl"
    prepare(GSM8K, source, tmp_path, Options())
    splits = prepare(GSM8K, source, tmp_path, Options((), (test,), drop_overlap=True)).splits
    assert (splits["test"].num_written, splits["test"].num_dropped) == (2, 0)
    assert splits["train"].num_dropped == 1
    with pytest.raises(InvalidArgumentError, match="compares train rows"):
        prepare(GSM8K, source, tmp_path, Options(("test",), (test,)))


def test_prepare_when_test_follows_train_then_its_overlap_is_told(tmp_path: Path) -> None:
    source = _source(tmp_path / "in", train=TRAIN, test=TEST)
    alone = prepare(GSM8K, source, tmp_path, Options(("train",))).splits["train"]
    assert not alone.overlaps
    after = prepare(GSM8K, source, tmp_path, Options(("test",))).splits["train"]
    whole = prepare(GSM8K, source, tmp_path / "whole", Options()).splits["train"]
    assert after == whole
    assert after.overlaps[0].num_exact == 1
    with pytest.raises(InvalidArgumentError, match="prepare train with test"):
        prepare(GSM8K, source, tmp_path, Options(("test",), drop_overlap=True))


def test_prepare_when_test_follows_train_then_what_was_left_out_of_train_stays_told(
    tmp_path: Path,
) -> None:
    source = _source(tmp_path / "in", train=TRAIN, test=TEST)
    prepare(GSM8K, source, tmp_path / "other", Options(("test",)))
    other = tmp_path / "other" / "gsm8k" / "test.jsonl"
    train = prepare(GSM8K, source, tmp_path, Options(("train",), (other,), drop_overlap=True))
    assert train.splits["train"].num_dropped == 1
    reworded = _source(tmp_path / "in2", test=[_row("How many are 3-4 apples?", -1)])
    after = prepare(GSM8K, reworded, tmp_path, Options(("test",))).splits["train"]
    assert [overlap.num_exact for overlap in after.overlaps] == [1, 1]
    assert len({overlap.sha256 for overlap in after.overlaps}) == 2
    again = prepare(GSM8K, reworded, tmp_path, Options(("test",))).splits["train"]
    assert again == after


def test_prepare_when_a_test_text_is_reworded_slightly_then_runs_of_words_find_it(
    tmp_path: Path,
) -> None:
    against = tmp_path / "other" / "test.jsonl"
    against.parent.mkdir()
    row = MathRow(id="a", problem=LONG.format("seven") + ".", answer="1", source="s")
    against.write_text(row.model_dump_json() + "\n")
    source = _source(tmp_path / "in", train=[_row("Well. " + LONG.format("seven"), 1)])
    options = Options(("train",), (against,))
    overlap = prepare(GSM8K, source, tmp_path, options).splits["train"].overlaps[0]
    assert (overlap.against, overlap.num_exact, overlap.num_ngram) == ("other/test.jsonl", 0, 1)
    assert overlap.sha256 == hashlib.sha256(against.read_bytes()).hexdigest()


def test_prepare_when_run_again_then_gives_equal_bytes(tmp_path: Path) -> None:
    source = _source(tmp_path / "in", train=TRAIN, test=TEST)
    outputs: list[dict[str, bytes]] = []
    for name in ("a", "b", "b"):
        prepare(GSM8K, source, tmp_path / name, Options())
        folder = tmp_path / name / "gsm8k"
        outputs.append({path.name: path.read_bytes() for path in folder.iterdir()})
    assert outputs[0] == outputs[1] == outputs[2]
    assert set(outputs[0]) == {"train.jsonl", "test.jsonl", "manifest.json", "README.md"}


def test_prepare_when_done_then_checksums_and_card_say_what_was_written(tmp_path: Path) -> None:
    source = _source(tmp_path / "in", train=TRAIN, test=TEST)
    manifest = prepare(GSM8K, source, tmp_path, Options())
    assert read_manifest(tmp_path / "gsm8k") == manifest
    for record in manifest.splits.values():
        data = (tmp_path / "gsm8k" / record.file).read_bytes()
        assert record.sha256 == hashlib.sha256(data).hexdigest()
        for file in record.inputs:
            published = (tmp_path / "in" / file.name).read_bytes()
            assert file.sha256 == hashlib.sha256(published).hexdigest()
    card = (tmp_path / "gsm8k/README.md").read_text()
    assert "arXiv 2110.14168" in card
    assert "1 duplicate, 1 no_final_answer, 1 schema:problem" in card


def test_prepare_when_a_published_file_is_damaged_then_leaves_the_old_file_whole(
    tmp_path: Path,
) -> None:
    prepare(GSM8K, _source(tmp_path / "in", test=TEST), tmp_path, Options(("test",)))
    before = (tmp_path / "gsm8k/test.jsonl").read_bytes()
    damaged = _source(tmp_path / "in2", test=TEST[:1])
    with (damaged.path / "test.jsonl").open("a") as file:
        file.write("{broken\n")
    with pytest.raises(InvalidArgumentError, match="line 2"):
        prepare(GSM8K, damaged, tmp_path, Options(("test",)))
    assert (tmp_path / "gsm8k/test.jsonl").read_bytes() == before
    assert not list((tmp_path / "gsm8k").glob(".*"))


@pytest.mark.parametrize(
    ("rows", "drop_overlap", "counts"),
    [
        ([], False, "0 read, 0 dropped"),
        ([{"problem": "a", "answer": "1"}] * 2, False, "2 read, 2 no_question, 0 dropped"),
        (TEST, True, "2 read, 2 dropped as overlap"),
    ],
)
def test_prepare_when_a_split_would_be_empty_then_says_why_and_leaves_the_old_file(
    rows: list[dict[str, Any]], drop_overlap: bool, counts: str, tmp_path: Path
) -> None:
    prepare(GSM8K, _source(tmp_path / "in", train=TRAIN, test=TEST), tmp_path, Options())
    folder = tmp_path / "gsm8k"
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    wrong = _source(tmp_path / "in2", train=rows)
    options = Options(("train",), drop_overlap=drop_overlap)
    with pytest.raises(InvalidArgumentError, match=f"no row of split 'train' of GSM8K: {counts}"):
        prepare(GSM8K, wrong, tmp_path, options)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_prepare_when_splits_come_from_two_revisions_then_each_keeps_its_own(
    tmp_path: Path,
) -> None:
    path = _source(tmp_path / "in", train=TRAIN, test=TEST).path
    prepare(GSM8K, Source(path, "rev-a"), tmp_path, Options(("train",), drop_overlap=True))
    options = Options(("test",), min_share=0.3)
    splits = prepare(GSM8K, Source(path, "rev-b"), tmp_path, options).splits
    assert {name: record.revision for name, record in splits.items()} == {
        "train": "rev-a",
        "test": "rev-b",
    }
    assert splits["train"].options == {"drop_overlap": "true", "min_share": "0.5"}
    assert splits["test"].options == {"drop_overlap": "false", "min_share": "0.3"}
    assert [overlap.min_share for overlap in splits["train"].overlaps] == [0.3]
    card = (tmp_path / "gsm8k/README.md").read_text()
    assert "| test | rev-b | 2 |" in card
    assert "| train | rev-a | 6 |" in card


def test_read_manifest_when_it_has_one_revision_for_all_splits_then_no_split_is_given_it(
    tmp_path: Path,
) -> None:
    source = Source(_source(tmp_path / "in", train=TRAIN, test=TEST).path, "new")
    prepare(GSM8K, source, tmp_path, Options())
    path = tmp_path / "gsm8k" / "manifest.json"
    document = json.loads(path.read_text())
    for record in document["splits"].values():
        del record["revision"], record["options"]
    old = {**document, "format": 1, "revision": "old", "options": {"min_share": "0.5"}}
    path.write_text(json.dumps(old))
    splits = prepare(GSM8K, source, tmp_path, Options(("test",))).splits
    assert (splits["train"].revision, splits["test"].revision) == (None, "new")
    assert splits["train"].num_written == 3


def test_prepare_when_one_split_follows_another_then_the_manifest_has_both(tmp_path: Path) -> None:
    source = _source(tmp_path / "in", train=TRAIN, test=TEST)
    prepare(GSM8K, source, tmp_path, Options(("test",)))
    manifest = prepare(GSM8K, source, tmp_path, Options(("train",)))
    assert set(manifest.splits) == {"train", "test"}
    assert manifest.splits["train"].overlaps[0].num_exact == 1
    (tmp_path / "gsm8k/test.jsonl").write_text("tampered\n")
    assert set(prepare(GSM8K, source, tmp_path, Options(("train",))).splits) == {"train"}


def test_prepare_when_the_source_lacks_a_split_then_says_what_it_looked_for(
    tmp_path: Path,
) -> None:
    source = _source(tmp_path / "in", train=TRAIN)
    with pytest.raises(NotFoundError, match=r"main/test-\*.parquet, test.jsonl"):
        prepare(GSM8K, source, tmp_path, Options())
    with pytest.raises(InvalidArgumentError, match="say which with --split"):
        prepare(GSM8K, Source(tmp_path / "in/train.jsonl"), tmp_path, Options())
    with pytest.raises(InvalidArgumentError, match="no split 'validation'"):
        prepare(GSM8K, source, tmp_path, Options(("validation",)))


def test_prepare_when_against_has_other_fields_then_says_so(tmp_path: Path) -> None:
    other = tmp_path / "x.jsonl"
    other.write_text('{"text": "a"}\n')
    source = _source(tmp_path / "in", train=TRAIN)
    with pytest.raises(InvalidArgumentError, match="without the field 'problem'"):
        prepare(GSM8K, source, tmp_path, Options(("train",), (other,)))


def test_math_family_when_given_prepared_data_then_its_splits_are_the_files(
    tmp_path: Path,
) -> None:
    source = _source(tmp_path / "in", train=TRAIN[:3], test=TEST)
    prepare(GSM8K, source, tmp_path, Options())
    taskset = Math(MathParams(data=tmp_path / "gsm8k")).taskset()
    assert [taskset.size(split) for split in ("train", "validation", "test")] == [2, 0, 2]
    task = taskset.task("test", 1)
    assert MathRow.model_validate_json(task.payload).answer == "2"
    with pytest.raises(InvalidArgumentError, match="there is no row 2"):
        taskset.task("test", 2)
    with pytest.raises(InvalidArgumentError, match="no file was given for split 'validation'"):
        taskset.task("validation", 0)
    files = {"train": tmp_path / "gsm8k/test.jsonl", "test": tmp_path / "gsm8k/test.jsonl"}
    with pytest.raises(
        InvalidArgumentError, match=r"2 rows of .*test\.jsonl are also rows of the train file"
    ):
        Math(MathParams.model_validate({"data": files})).taskset()


def test_split_rows_when_a_single_file_is_given_then_it_is_the_test_split(tmp_path: Path) -> None:
    path = tmp_path / "mine.jsonl"
    row = MathRow(id="a", problem="p", answer="1", source="s")
    path.write_text(f"\n{row.model_dump_json()}\n\n{row.model_dump_json()}\n")
    rows = SplitRows(path, MathRow)
    assert (rows.size("test"), rows.size("train")) == (2, 0)
    assert list(rows.rows("test")) == [row, row]
    with pytest.raises(NotFoundError, match="troupe data prepare"):
        SplitRows(tmp_path / "none", MathRow)


def test_prepared_rows_when_a_row_is_of_another_task_then_says_which(tmp_path: Path) -> None:
    path = tmp_path / "test.jsonl"
    path.write_text('{"id": "a"}\n')
    with pytest.raises(InvalidArgumentError, match="row 0: not a MathRow"):
        PreparedRows(path, MathRow)[0]


def test_data_commands_when_run_then_prepare_and_list(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = _source(tmp_path / "in", train=TRAIN, test=TEST)
    args = ["data", "prepare", "gsm8k", "--source", str(source.path), "--out", str(tmp_path)]
    assert run([*args, "--json"]) == 0
    manifest = Manifest.model_validate_json(capsys.readouterr().out)
    assert manifest.splits["train"].num_written == 3
    assert run(args) == 0
    captured = capsys.readouterr()
    assert "train.jsonl: 3 of 6 rows" in captured.out
    assert "1 train rows overlap with gsm8k/test.jsonl" in captured.err
    assert run(["data", "list", "--json"]) == 0
    assert "gsm8k" in {found["name"] for found in json.loads(capsys.readouterr().out)}
    assert run([*args, "--split", "dev"]) == 2
    assert run(["data", "prepare", "nothing"]) == 2
    assert run(["data", "prepare", "gsm8k", "--source", str(tmp_path / "none")]) == 2
    assert "does not exist; give a file or folder of GSM8K" in capsys.readouterr().err
