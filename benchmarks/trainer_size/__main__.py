"""Whether a trainer of real size fits: a step and a state through ranks, memory, cells, layers.

Run: ``python -m benchmarks.trainer_size [--quick]``. Counted on CPUs: four gloo ranks that take 50
million tokens and a state of 1.1 GB, the predicted share of every GPU that a file of this
repository names, attended cells of drawn groups, and the layers that two ranks gather at once. The
quick form sends a million tokens and a state of some megabytes, by the same code. The last line is
one JSON object; exits 0 whatever it shows.
"""

import argparse
import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from transformers.utils import logging as transformers_logging

from benchmarks.report import clean_up_on_sigterm, commit, goal, machine
from benchmarks.trainer_size.cells import count_cells
from benchmarks.trainer_size.exchange import RANKS, send_step
from benchmarks.trainer_size.gathered import SHAPE, count_gathered
from benchmarks.trainer_size.gpu_files import placements
from benchmarks.trainer_size.state import GIGABYTE, keep_state
from troupe.errors import InvalidArgumentError
from troupe.spec.memory import GB, USABLE

CELLS = 1.2
LAYERS = 2
BESIDE_PART = 2 * GB
"""Host memory of a rank beside its part of the state."""

Goals = list[dict[str, Any]]


def exchanged(*, quick: bool) -> tuple[dict[str, Any], Goals]:
    """A step to four ranks."""
    wanted = 1_000_000 if quick else 50_000_000
    step = send_step(wanted)
    figures = {
        "tokens": step.tokens,
        "groups": step.groups,
        "ranks": RANKS,
        "seconds": round(step.seconds, 1),
        "peak_of_rank_0_mb": round(step.first_peak / 1e6),
        "peak_of_others_mb": round(step.other_peak / 1e6),
    }
    arrived = step.received if step.is_whole else 0
    return figures, [
        goal(f"tokens of a step through {RANKS} ranks", arrived, wanted, arrived >= wanted)
    ]


def kept(*, quick: bool) -> tuple[dict[str, Any], Goals]:
    """A state over four ranks, and the host's memory."""
    with tempfile.TemporaryDirectory(prefix="troupe-size-") as folder:
        state = keep_state(Path(folder), SHAPE if quick else GIGABYTE)
    wanted = 10**7 if quick else GB
    restored = state.size if state.is_same else 0
    figures = {
        "state_mb": round(state.size / 1e6),
        "write_s": round(state.write_s, 1),
        "restore_s": round(state.restore_s, 1),
        "grown_mb": {when: round(size / 1e6) for when, size in state.grown.items()},
    }
    beside = state.beside_part
    return figures, [
        goal(f"bytes of a state restored by {RANKS} ranks", restored, wanted, restored >= wanted),
        goal("host memory of a rank beside its part, bytes", beside, BESIDE_PART,
             beside <= BESIDE_PART),
    ]  # fmt: skip


def predicted(*, quick: bool) -> tuple[dict[str, Any], Goals]:
    """The largest share of a GPU over all files."""
    _ = quick
    shares: dict[str, float] = {}
    refused: list[str] = []
    for place in placements():
        try:
            shares[place.name] = max(shares.get(place.name, 0.0), place.trainer_share())
        except InvalidArgumentError as error:
            refused.append(f"{place.name}: {error.message}")
    where, most = max(shares.items(), key=lambda item: item[1])
    figures = {"placements": len(shares), "largest": where, "refused": refused}
    return figures, [
        goal("largest predicted share of a GPU", round(most, 4), USABLE, most <= USABLE),
        goal("jobs that do not fit their GPU", len(refused), 0, not refused),
    ]


def attended(*, quick: bool) -> tuple[dict[str, Any], Goals]:
    """Cells of attention, and sizes of micro-batches."""
    cells = count_cells(30 if quick else 600)
    figures = {
        "microbatches": cells.microbatches,
        "all_draws": round(cells.overall, 4),
        "largest_of_a_group_above_512": round(cells.group, 3),
        "largest_of_trees": round(cells.trees, 3),
    }
    return figures, [
        goal("attended over visible cells, blocks above 512 tokens", round(cells.segments, 4),
             CELLS, cells.segments <= CELLS),
        goal("attended over visible cells, all draws", round(cells.overall, 4), CELLS,
             cells.overall <= CELLS),
        goal("micro-batches above their budget", cells.above, 0, cells.above == 0),
    ]  # fmt: skip


def gathered(*, quick: bool) -> tuple[dict[str, Any], Goals]:
    """Layers that ranks gather."""
    _ = quick
    with tempfile.TemporaryDirectory(prefix="troupe-size-") as folder:
        rows = list(count_gathered(Path(folder)))
    most = max(max(row.layers, row.reference_layers or 0) for row in rows)
    figures = {"cases": len(rows), "least": min(row.layers for row in rows)}
    return figures, [goal("layers gathered at a moment", most, LAYERS, 1 <= most <= LAYERS)]


PARTS: dict[str, Callable[..., tuple[dict[str, Any], Goals]]] = {
    "exchange": exchanged,
    "state": kept,
    "gpus": predicted,
    "cells": attended,
    "layers": gathered,
}


def main() -> None:
    """Run each part in turn."""
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m benchmarks.trainer_size")
    parser.add_argument("--quick", action="store_true", help="small sizes, the same code")
    args = parser.parse_args()
    clean_up_on_sigterm()
    transformers_logging.disable_progress_bar()
    result: dict[str, Any] = {
        "benchmark": "trainer_size",
        "commit": commit(),
        "machine": machine(),
        "quick": args.quick,
    }
    goals: Goals = []
    for name, part in PARTS.items():
        result[name], more = part(quick=args.quick)
        goals += more
        print(json.dumps({name: result[name], "goals": more}), flush=True)
    print(json.dumps(result | {"goals": goals}))


if __name__ == "__main__":
    main()
