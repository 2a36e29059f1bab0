"""Reads rows of published files, one at a time, whatever their format.

Formats: JSON Lines (also gzip), JSON, CSV, Parquet, Arrow, text files side by side, and folders
written by the ``datasets`` package. A byte order mark, as Windows writes it, is no part of a row.
Never unpickles anything and never runs code of the data.
"""

import csv
import gzip
import importlib
import json
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, cast

from troupe.errors import InvalidArgumentError, NotFoundError

BATCH_ROWS = 256
"""Rows decoded at a time from columnar files."""

MAX_CSV_FIELD_BYTES = 16 * 1024 * 1024
MAX_PARTS_BYTES = 4 * 1024 * 1024

_CHATS = {"prompt", "messages", "conversation", "conversations"}
_ANSWERS = {"completion", "chosen", "rejected"}
_LISTS_OF_A_ROW = _CHATS | _ANSWERS | {"tools", "choices", "options", "paragraphs"}
"""Fields of one row that are lists of objects themselves: chats, tools, what a question offers."""

Rows = Iterator[dict[str, Any]]


def read_rows(path: Path) -> Rows:
    """The rows of one file, or of a folder that ``datasets.save_to_disk`` wrote, in order.

    Raises NotFoundError when there is nothing at ``path``, InvalidArgumentError when the format is
    unknown, a row cannot be read (the message names the line), or pyarrow is needed and missing.
    """
    if not path.exists():
        raise NotFoundError(f"{path} does not exist; give a file or folder of the data set")
    if path.is_dir():
        return _saved_folder(path)
    reader = _READERS.get(format_of(path) or "")
    if reader is None:
        raise InvalidArgumentError(
            f"{path} has a format that is not read here; known are {', '.join(_READERS)} and "
            "folders written by datasets.save_to_disk"
        )
    return reader(path)


def format_of(path: Path) -> str | None:
    """The known ending of ``path``'s name, or None."""
    name = path.name.lower()
    return next((ending for ending in _READERS if name.endswith(ending)), None)


def is_saved_folder(path: Path) -> bool:
    """Whether ``datasets.save_to_disk`` wrote the folder: one split, not a dictionary of them."""
    return (path / "state.json").is_file()


def _json_lines(path: Path) -> Rows:
    opened = gzip.open if path.name.lower().endswith(".gz") else open
    with opened(path, "rt", encoding="utf-8-sig") as lines:
        try:
            for number, line in enumerate(lines, start=1):
                if line.strip():
                    yield _object(line, path, number)
        except (OSError, EOFError, UnicodeDecodeError, zlib.error) as error:
            raise InvalidArgumentError(
                f"{path} cannot be read: {error}; the file is damaged, get it again"
            ) from error


def _object(line: str, path: Path, number: int) -> dict[str, Any]:
    try:
        row: Any = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise InvalidArgumentError(
            f"{path}, line {number}: not JSON ({error}); the file is damaged, get it again"
        ) from error
    if not isinstance(row, dict):
        raise InvalidArgumentError(
            f"{path}, line {number}: a row must be a JSON object, not {type(row).__name__}"
        )
    return cast("dict[str, Any]", row)


def _parts(path: Path) -> Rows:
    """One row of the text files ``<name>_<part>.*`` beside ``<name>_prompt.txt``."""
    name, mark, _ = path.stem.rpartition("_")
    if not mark:
        raise InvalidArgumentError(f"{path} is named without a part, such as problem_prompt.txt")
    files = sorted(f for f in path.parent.iterdir() if f.stem.rpartition("_")[0] == name)
    if sum(file.stat().st_size for file in files) > MAX_PARTS_BYTES:
        raise InvalidArgumentError(f"{path} and its parts hold more than {MAX_PARTS_BYTES} bytes")
    try:
        yield {"name": name} | {f.stem.rpartition("_")[2]: f.read_text("utf-8") for f in files}
    except UnicodeDecodeError as error:
        raise InvalidArgumentError(f"{path} and its parts are not text ({error})") from error


def _json(path: Path) -> Rows:
    """A list of objects, an object with one list of them, or JSON Lines under the wrong name."""
    if _holds_lines(path):
        yield from _json_lines(path)
        return
    document = _document(path)
    if isinstance(document, dict):
        table = _table_in(cast("dict[str, Any]", document))
        document = [document] if table is None else table
    if not isinstance(document, list):
        raise InvalidArgumentError(f"{path} holds neither a list of rows nor an object with one")
    for number, row in enumerate(cast("list[Any]", document), start=1):
        if not isinstance(row, dict):
            raise InvalidArgumentError(f"{path}, item {number}: a row must be a JSON object")
        yield cast("dict[str, Any]", row)


def _document(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise InvalidArgumentError(f"{path} is not JSON ({error}); get it again") from error


def _table_in(document: dict[str, Any]) -> list[Any] | None:
    """The one list of rows beside what describes it; None where the object is a row."""
    tables = [name for name, value in document.items() if _is_table(value)]
    return document[tables[0]] if len(tables) == 1 and tables[0] not in _LISTS_OF_A_ROW else None


def _is_table(value: Any) -> bool:
    """Whether ``value`` is a list of objects, not of texts or numbers."""
    return isinstance(value, list) and bool(value) and all(isinstance(v, dict) for v in value)


def _holds_lines(path: Path) -> bool:
    """Whether the first line is an object by itself and another line follows."""
    with path.open(encoding="utf-8-sig", errors="replace") as text:
        first, second = text.readline(), text.readline()
    if not first.lstrip().startswith("{") or not second.strip():
        return False
    try:
        json.loads(first)
    except (ValueError, RecursionError):
        return False
    return True


def _csv(path: Path) -> Rows:
    csv.field_size_limit(MAX_CSV_FIELD_BYTES)
    with path.open(encoding="utf-8-sig", newline="") as text:
        reader = csv.DictReader(text, strict=True)
        try:
            # Columns without a name, as spreadsheets leave them behind, are in nobody's way.
            _refuse_repeats([name for name in reader.fieldnames or () if name], path)
            for row in reader:
                yield _checked_csv(row, path, reader.line_num)
        except (csv.Error, UnicodeDecodeError) as error:
            raise InvalidArgumentError(
                f"{path}, line {reader.line_num}: not CSV ({error})"
            ) from error


def _checked_csv(row: dict[Any, Any], path: Path, number: int) -> dict[str, Any]:
    if None in row or None in row.values():
        raise InvalidArgumentError(
            f"{path}, line {number}: more or fewer fields than the header names"
        )
    return row


def _refuse_repeats(names: Sequence[str], path: Path) -> None:
    repeated = [name for name, count in Counter(names).items() if count > 1]
    if repeated:
        raise InvalidArgumentError(
            f"{path} has several columns called {', '.join(map(repr, repeated))}, and a row holds "
            "one of a name; rename or remove them"
        )


def _parquet(path: Path) -> Rows:
    parquet = _pyarrow("pyarrow.parquet", path)
    try:
        with parquet.ParquetFile(path) as file:
            _refuse_repeats(file.schema_arrow.names, path)
            for batch in file.iter_batches(batch_size=BATCH_ROWS):
                yield from batch.to_pylist()
    except _damage(path) as error:
        raise InvalidArgumentError(
            f"{path} is not Parquet ({type(error).__name__}: {error}); get it again"
        ) from error


def _damage(path: Path) -> tuple[type[Exception], ...]:
    """What pyarrow raises for a damaged file.

    A damaged length requests more memory than exists; a damaged type is unknown.
    """
    return OSError, ValueError, MemoryError, _pyarrow("pyarrow.lib", path).ArrowException


def _arrow(path: Path) -> Rows:
    """An Arrow IPC stream, which is what ``datasets`` writes."""
    ipc = _pyarrow("pyarrow.ipc", path)
    try:
        with path.open("rb") as data, ipc.open_stream(data) as stream:
            _refuse_repeats(stream.schema.names, path)
            for batch in stream:
                # Arrow trusts the offsets in a file: damaged ones would crash the process.
                batch.validate(full=True)
                for start in range(0, batch.num_rows, BATCH_ROWS):
                    yield from batch.slice(start, BATCH_ROWS).to_pylist()
    except _damage(path) as error:
        raise InvalidArgumentError(
            f"{path} is not an Arrow stream ({type(error).__name__}: {error}); get it again"
        ) from error


def _saved_folder(path: Path) -> Rows:
    if (path / "dataset_dict.json").is_file():
        raise InvalidArgumentError(
            f"{path} holds several splits ({', '.join(_folders(path))}); give one of these folders"
        )
    if not is_saved_folder(path):
        raise InvalidArgumentError(
            f"{path} is a folder that datasets.save_to_disk did not write (it has no state.json); "
            "give one of the files in it"
        )
    state = _document(path / "state.json")
    try:
        names = [Path(file["filename"]).name for file in state["_data_files"]]
        is_selection = bool(state.get("_indices_data_files"))
    except (TypeError, AttributeError, LookupError) as error:
        raise InvalidArgumentError(
            f"{path / 'state.json'} is not what datasets.save_to_disk writes ({error!r}); get the "
            "folder again"
        ) from error
    if is_selection:
        raise InvalidArgumentError(
            f"{path} keeps an index of selected rows; save it again after flatten_indices()"
        )
    return chain.from_iterable(_arrow(path / name) for name in names)


def _folders(path: Path) -> list[str]:
    return sorted(child.name for child in path.iterdir() if is_saved_folder(child))


def _pyarrow(module: str, path: Path) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise InvalidArgumentError(
            f"reading {path} needs pyarrow, which is not installed: pip install 'troupe[data]'"
        ) from error


_READERS: dict[str, Callable[[Path], Rows]] = {
    ".jsonl": _json_lines,
    ".jsonl.gz": _json_lines,
    ".json": _json,
    ".parquet": _parquet,
    ".arrow": _arrow,
    ".csv": _csv,
    "_prompt.txt": _parts,
}
