"""Runs a benchmark, keeps its JSON line, and writes the page that lists all of them.

    python -m benchmarks.record sandbox            # in full; docs/testing.md says how long
    python -m benchmarks.record sandbox --quick    # what CI does: nothing may rot
    python -m benchmarks.record                    # only the page again

Of each benchmark the newest full run and the newest quick run stay in results/runs.jsonl, failed
ones too. benchmarks/README.md is made from that file alone.
"""

import ast
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.report import commit, machine

FOLDER = Path(__file__).parent
RUNS = FOLDER / "results" / "runs.jsonl"
PAGE = FOLDER / "README.md"
QUICK = "--quick"
NOT_QUICK = {
    "gpu_rollout": "needs an accelerator",
    "vs_peers": "needs `scripts/setup_peers.py`",
}
"""Benchmarks whose quick form does not run on every machine, and why."""

_HEAD = """# Benchmarks

Made by `python -m benchmarks.record`; do not edit. `python -m benchmarks.record NAME` runs one in
full on this machine and brings its row up to date. A quick run says that a benchmark works; its
figures say nothing. Links lead to pages that discuss full runs, most of them older than this list:
commit and machine stand there.

| `python -m benchmarks.…` | measures | goals | last full run | last quick run |
|---|---|---|---|---|
"""


def benchmarks() -> dict[str, str]:
    """Name and first line of every benchmark: a module that has a quick form."""
    files = [*FOLDER.glob("*.py"), *FOLDER.glob("*/__main__.py")]
    found = {p.parent.name if p.stem == "__main__" else p.stem: p.read_text("utf-8") for p in files}
    return {
        name: (ast.get_docstring(ast.parse(text)) or "").split("\n", 1)[0]
        for name, text in sorted(found.items())
        if f'"{QUICK}"' in text and name != "record"
    }


def last_line(output: str) -> dict[str, Any]:
    """The object that the benchmark printed last; empty where its last line is none."""
    try:
        found = json.loads((output.strip().splitlines() or [""])[-1])
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def record(name: str, arguments: Sequence[str]) -> int:
    """Run a benchmark, show what it prints, keep its line; its exit status, 1 without a line."""
    started = time.monotonic()
    command = [sys.executable, "-m", f"benchmarks.{name}", *arguments]
    with subprocess.Popen(command, cwd=FOLDER.parent, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        lines = []
        for line in child.stdout:
            print(line, end="", flush=True)
            lines.append(line)
    line = last_line("".join(lines))
    run = {
        "benchmark": name,
        "arguments": list(arguments),
        "commit": commit(),
        "date": datetime.now(UTC).date().isoformat(),
        "machine": machine(),
        "seconds": round(time.monotonic() - started),
        "status": child.returncode,
        "goals": line.get("goals", []),
        "skipped": line.get("skipped", "").replace(f"{FOLDER.parent}/", ""),
    }
    key = _key(run)
    kept = [other for other in runs() if _key(other) != key]
    ordered = sorted([*kept, run], key=_key)
    RUNS.write_text("".join(json.dumps(each) + "\n" for each in ordered), encoding="utf-8")
    write_page()
    if not line:
        print(f"benchmarks.{name} printed no JSON object last", file=sys.stderr)
    return child.returncode or int(not line)


def runs() -> list[dict[str, Any]]:
    """The newest full and quick run of each benchmark."""
    if not RUNS.is_file():
        return []
    return [json.loads(line) for line in RUNS.read_text("utf-8").splitlines()]


def _key(run: dict[str, Any]) -> tuple[str, bool]:
    return run["benchmark"], QUICK in run["arguments"]


def write_page() -> None:
    """Write benchmarks/README.md."""
    PAGE.write_text(page(), encoding="utf-8")


def page() -> str:
    """The list of all benchmarks."""
    newest = {_key(run): run for run in runs()}
    rows = []
    for name, measures in benchmarks().items():
        full, quick = newest.get((name, False)), newest.get((name, True))
        results = FOLDER / "results" / f"{name}.md"
        linked = f"[`{name}`](results/{name}.md)" if results.is_file() else f"`{name}`"
        cells = [linked, measures.rstrip("."), _goals(full, quick), _run(full), _run(quick, name)]
        rows.append("| " + " | ".join(cell.replace("|", "/") for cell in cells) + " |")
    return _HEAD + "\n".join(rows) + "\n"


def _goals(full: dict[str, Any] | None, quick: dict[str, Any] | None) -> str:
    """The goals with what a full run reached; without one, what is wanted."""
    told = []
    for goal in (full or quick or {"goals": []})["goals"]:
        wanted = f"{goal['name']}: {_number(goal['goal'])}"
        reached = f", was {_number(goal['value'])}: {'holds' if goal['holds'] else '**missed**'}"
        told.append(wanted + (reached if full else ""))
    return "<br>".join(told) or ("none" if full or quick else "")


def _number(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _run(run: dict[str, Any] | None, name: str = "") -> str:
    if run is None:
        return NOT_QUICK.get(name, "not recorded")
    if run["skipped"]:
        return f"skipped: {run['skipped']}"
    failed = f", **exit status {run['status']}**" if run["status"] else ""
    return f"{run['commit']}, {run['date']}, {run['seconds']} s{failed}"


def main(arguments: Sequence[str]) -> int:
    """Record one benchmark, or write the page."""
    if not arguments:
        write_page()
        return 0
    name, *rest = arguments
    if name not in benchmarks():
        raise SystemExit(f"no benchmark '{name}'; there are {', '.join(benchmarks())}")
    return record(name, rest)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
