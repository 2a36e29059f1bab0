"""LLM-SRBench: equations to be found in tables of readings, for evaluation.

Format: https://github.com/deep-symbolic-mathematics/llm-srbench (the hub's splits
``lsr_transform`` and ``lsr_synth_*`` have ``name``, ``symbols``, ``symbol_descs``,
``symbol_properties`` and ``expression``; the tables are in ``lsr_bench_data.hdf5`` beside them, as
``<split>/<name>/train``, ``test`` and ``ood_test``). Rows are read with their tables in the fields
``train``, ``test`` and ``ood_test`` (lists of rows, the output first), as a script of a few lines
joins them.
"""

from typing import Any, cast

from troupe.data.dataset import Dataset, RefusedRowError, Row
from troupe.data.fields import items, text
from troupe_tasks.discovery.tables import MAX_ROWS, OUTPUT, TableRow


def convert(row: Row) -> dict[str, Any]:
    """A table of readings with its held-out tables; the law itself is kept for its size only."""
    symbols = [str(symbol) for symbol in items(row, "symbols")]
    kinds = [str(kind) for kind in items(row, "symbol_properties")]
    if len(symbols) != len(kinds) or kinds.count("O") != 1:
        raise RefusedRowError("no_single_output")
    inputs = [s for s, kind in zip(symbols, kinds, strict=True) if kind == "V"]
    descriptions = [str(part) for part in items(row, "symbol_descs")]
    tables = {name: _table(row, name, len(inputs) + 1) for name in ("train", "test")}
    far = _table(row, "ood_test", len(inputs) + 1) if row.get("ood_test") else []
    return {
        "id": f"llm_srbench/{text(row, 'name')}",
        "names": inputs,
        "descriptions": [
            d for d, kind in zip(descriptions, kinds, strict=False) if kind in (OUTPUT, "V")
        ],
        "readings": tables["train"],
        "held_out": tables["test"],
        "far": far,
        "expression": text(row, "expression"),
        "source": "llm_srbench",
    }


def _table(row: Row, name: str, width: int) -> list[list[float]]:
    """The table's first rows; refuses a table of another width or with text."""
    rows: list[list[float]] = []
    for line in items(row, name)[:MAX_ROWS]:
        if not isinstance(line, list) or len(cast("list[Any]", line)) != width:
            raise RefusedRowError(f"{name}_of_another_width")
        try:
            rows.append([float(cell) for cell in cast("list[Any]", line)])
        except (TypeError, ValueError) as error:
            raise RefusedRowError(f"{name}_no_number") from error
    return rows


DATASET = Dataset(
    name="llm_srbench",
    task="discovery",
    title="LLM-SRBench",
    hub_id="nnheui/llm-srbench",
    splits={"test": ("lsr_*.jsonl",)},
    schema=TableRow,
    convert=convert,
    licence="see its card",
    citation="Shojaee et al. 2025, LLM-SRBench: A New Benchmark for Scientific Equation Discovery "
    "with Large Language Models, arXiv 2504.10415",
    format_source="https://github.com/deep-symbolic-mathematics/llm-srbench",
    contamination_fields=("expression",),
)
