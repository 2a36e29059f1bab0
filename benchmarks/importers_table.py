"""Runs ``troupe check`` on every data set of reasoning-gym and on environments of verifiers.

    python -m benchmarks.importers_table [--quick] [--only verifiers] [--audit NAME ...]

``python scripts/importer_venvs.py`` makes the interpreters; what has none is skipped, and said.
Each line of benchmarks/results/importers.jsonl is one environment; the tables of
docs/importers.md are written from them.
"""

import argparse
import json
import os
import resource
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

from benchmarks import importer_rows
from troupe.conformance import CheckLimits, Reference, check_family
from troupe.errors import TroupeError
from troupe.tasks.registry import load_family

ROOT = Path(__file__).resolve().parent.parent
VENVS = ROOT / ".venv-importers"
RESULTS = ROOT / "benchmarks" / "results" / "importers.jsonl"
PAGE = ROOT / "docs" / "importers.md"
LIMITS = CheckLimits(
    seconds=0.1,
    num_tasks=2,
    max_steps=8,
    check_seconds=1.5,
    huge_chars=2_000,
    num_processes=1,
    num_draws=6,
    split_sample=40,
)

V0 = [
    "alphabet_sort",
    "doublecheck",
    "gsm8k",
    "math_group",
    "math_python",
    "mmmu",
    "reasoning_gym_env",
    "reverse_text",
    "self_reward",
    "sentence_repeater",
    "tool_test",
    "toxicity_explanation",
    "continuation_quality",
    "wiki_search",
    "wordle",
]
V1 = [
    "alphabet_sort",
    "bash_interception",
    "code_golf",
    "color_codeword",
    "compact",
    "deepwiki",
    "glossary",
    "grayscale_interception",
    "gsm8k",
    "interception",
    "kuhn_poker",
    "openenv_wordle",
    "proposer_solver",
    "reverse_text",
    "scratchpad",
    "web_search_interception",
    "wiki_search",
    "wordle",
]
GAMES = ("Hangman-v0", "WordLadder-v0", "WordSearch-v0")
ARGS: dict[str, dict[str, Any]] = {"reasoning_gym_env": {"args": {"gym": "leg_counting"}}}
"""Parameters that an environment needs, or a smaller instance of it."""


def cases() -> Iterator[tuple[str, str, str, dict[str, Any]]]:
    """(release, shown name, task, parameters) of everything in the table."""
    files = importer_rows.write(VENVS / "rows")
    for venv, names in (("verifiers_v0", V0), ("verifiers_v1", V1)):
        for name in names:
            given = {**ARGS.get(name, {}), "datasets": files, "max_rows": 200}
            yield venv, name, f"verifiers:{name}", given
    for game in GAMES:
        given = {"args": {"game": game}, "max_rows": 100}
        yield "verifiers_v1", f"textarena ({game})", "verifiers:textarena", given
    for name in datasets():
        given = {"num_items": 60}
        if name == "composite":
            given["config"] = {"datasets": [{"name": "leg_counting"}, {"name": "chain_sum"}]}
        yield "reasoning_gym", name, f"reasoning_gym:{name}", given


def datasets() -> list[str]:
    """Names of reasoning-gym's data sets, as its release lists them."""
    python = VENVS / "reasoning_gym" / "bin" / "python"
    if not python.exists():
        return []
    import subprocess

    code = "import reasoning_gym.factory as f; print(*sorted(f.DATASETS))"
    done = subprocess.run([str(python), "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.split()


def checked(
    venv: str, shown: str, task: str, params: dict[str, Any], limits: Any
) -> dict[str, Any]:
    """One row of the table."""
    python = VENVS / venv / "bin" / "python"
    params = {**params, "python": str(python)}
    row: dict[str, Any] = {"release": venv, "name": shown, "processes": limits.num_processes}
    began = time.monotonic()
    try:
        family = load_family(task, params)
        played = one_episode(family)
        report = check_family(family, reference=Reference(task, params), limits=limits)
    except TroupeError as error:
        return {**row, "result": "no", "why": " ".join(error.message.split())[:300]}
    failed, warned = list(report.failed), list(report.named("warned"))
    row |= {"result": "passed" if report.is_ok else "failed", "failed": failed, "warned": warned}
    row |= played | {"seconds": round(time.monotonic() - began, 1)}
    if not report.is_ok:
        row["why"] = " ".join(
            f"{c.name}: {' '.join(c.evidence)}" for c in report.checks if c.name in failed
        )[:300]
    return row


def one_episode(family: Any) -> dict[str, Any]:
    """Turns, state bytes and processor time a step of one episode of demonstrations or words."""
    environment, rng = family.environment(), Random(0)
    before = cpu()
    state = environment.reset(family.taskset().task("train", 0))
    turns, size = 0, len(state)
    is_done = False
    while not is_done and turns < 40:
        agent = next((a for a in family.agents if environment.observe(state, a)), None)
        if agent is None:
            break
        play = getattr(family, "demonstrate", None)
        text = play(state, agent, rng) if play else "I do not know. [check] 7"
        done = environment.step(state, agent, text)
        state, is_done = done.state, done.done
        turns, size = turns + 1, max(size, len(state))
    used = cpu() - before + guest_cpu(family)
    return {"turns": turns, "state_bytes": size, "cpu_ms": round(1000 * used / max(turns, 1), 1)}


def guest_cpu(family: Any) -> float:
    """Processor time that the family's guest used after its start."""
    guest = getattr(family, "_guest", None) or family._guests.processes[0]
    return guest.spent_s()


def cpu() -> float:
    """Processor time of this process."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def write_page(rows: list[dict[str, Any]]) -> None:
    """Replace what stands between the page's markers."""
    text = PAGE.read_text("utf-8")
    for release in ("verifiers_v1", "verifiers_v0", "reasoning_gym"):
        begin, end = f"<!-- {release} -->", f"<!-- /{release} -->"
        head, _, rest = text.partition(begin)
        tail = rest.partition(end)[2]
        text = f"{head}{begin}\n{table([r for r in rows if r['release'] == release])}{end}{tail}"
    PAGE.write_text(text, "utf-8")


def table(rows: list[dict[str, Any]]) -> str:
    """Rows as Markdown."""
    lines = ["| environment | check | turns | state bytes | CPU a step, ms | note |"]
    lines.append("|---|---|---|---|---|---|")
    for row in rows:
        note = row.get("why") or (
            "warned: " + ", ".join(row["warned"]) if row.get("warned") else ""
        )
        cells = [row["name"], row["result"], row.get("turns", ""), row.get("state_bytes", "")]
        cells += [row.get("cpu_ms", ""), note.replace("|", "/").replace("\n", " ")]
        lines.append("| " + " | ".join(str(cell) for cell in cells) + " |")
    return "\n".join(lines) + "\n"


def main() -> int:
    """Check everything that has an interpreter, and write the tables."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true", help="three of each")
    parser.add_argument("--only", default="", help="names or releases that contain this")
    parser.add_argument("--page", action="store_true", help="write the tables and check nothing")
    parser.add_argument("--resume", action="store_true", help="only what has no line yet")
    parser.add_argument("--processes", type=int, default=1, help="that repeat the judgements")
    parser.add_argument("--share", default="0/1", help="1/3: the second of three shares")
    parser.add_argument("--results", type=Path, default=RESULTS, help="the lines to add to")
    options = parser.parse_args()
    results: Path = options.results
    known = (
        [json.loads(line) for line in results.read_text().splitlines()] if results.exists() else []
    )
    by_name = {(row["release"], row["name"]): row for row in known}
    counted: dict[str, int] = {}
    os.environ["TROUPE_IMPORT_ALLOWS_RUNTIME"] = "true"
    os.environ["TROUPE_IMPORT_HOME"] = str(VENVS / "rows" / "home")
    share, num_shares = (int(part) for part in options.share.split("/"))
    chosen = [] if options.page else list(cases())[share::num_shares]
    for venv, shown, task, params in chosen:
        if options.only not in f"{venv} {shown}":
            continue
        if options.resume and (venv, shown) in by_name:
            continue
        counted[venv] = counted.get(venv, 0) + 1
        if options.quick and counted[venv] > 3:
            continue
        if not (VENVS / venv).is_dir():
            print(f"{shown}: skipped, there is no {VENVS / venv}", file=sys.stderr)
            continue
        limits = replace(LIMITS, num_processes=options.processes)
        row = checked(venv, shown, task, params, limits)
        by_name[venv, shown] = row
        print(json.dumps(row), flush=True)
        if not options.quick:
            results.write_text("".join(json.dumps(r) + "\n" for r in by_name.values()))
    if not options.quick:
        write_page(list(by_name.values()))
    found = [row["result"] for row in by_name.values()]
    print(json.dumps({word: found.count(word) for word in ("passed", "failed", "no")}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
