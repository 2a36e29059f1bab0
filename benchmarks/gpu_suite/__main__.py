"""The first day with a GPU as one command: each part a line of JSON, with a limit and goals.

    python -m benchmarks.gpu_suite --model FOLDER [--minutes 15]     # on a machine with a GPU
    python -m benchmarks.gpu_suite --device cpu --quick              # here, with tiny models

Parts run one after another in processes of their own, those first that tell most in few minutes. A
part that fails or takes too long ends alone. Lines are appended to ``--results``; what is there
already, of the same command on the same card, is not done again unless ``--again`` names it; a part
that is unfinished goes on. The last line is one JSON object; exits 0 whatever it shows.
"""

import argparse
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from benchmarks.gpu_suite.part import name_of
from benchmarks.gpu_suite.parts import PARTS, Part, Suite
from benchmarks.gpu_suite.results import Results
from benchmarks.gpu_suite.runner import run
from benchmarks.report import clean_up_on_sigterm, commit, machine

ROOT = Path(__file__).parents[2]
FULL, TRIED = ROOT / "benchmarks/results/gpu_suite.jsonl", ROOT / "build/gpu_suite/tried.jsonl"


def main() -> None:
    """Run what is wanted and not there yet."""
    args = options()
    clean_up_on_sigterm()
    report: dict[str, Any] = {"benchmark": "gpu_suite", "commit": commit(), "machine": machine()}
    if args.device == "cuda" and not torch.cuda.is_available():
        why = f"torch {torch.__version__} sees no GPU; to try the suite: --device cpu --quick"
        print(f"Nothing was measured: {why}")
        print(json.dumps(report | {"skipped": why, "goals": []}))
        return
    suite = Suite(args.device, args.quick, args.model, args.example, args.steps, args.tasks)
    lines = run_all(suite, args)
    goals = [g | {"name": f"{line['part']}: {g['name']}"} for line in lines for g in line["goals"]]
    states = {line["part"]: line["status"] for line in lines}
    report |= {"device": name_of(args.device), "spec": vars(args) | {"results": args.results.name}}
    reasons = {line["part"]: why for line in lines if (why := reason(line))}
    print(json.dumps(report | {"parts": states, "why": reasons, "goals": goals}))


def reason(line: dict[str, Any]) -> str:
    """Why a part was not done; empty where it was."""
    result = line.get("result", {})
    match line["status"]:
        case "skipped" | "unfinished" as state:
            return result[state]
        case "failed":
            return next(reversed(line["tail"]), f"exit status {line['exit']}")
        case "out of time":
            return f"not ended after {line['limit_s']} s"
        case _:
            return line.get("why", "")


def options() -> argparse.Namespace:
    """What was asked for."""
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m benchmarks.gpu_suite")
    parser.add_argument("--device", default="", choices=["cuda", "cpu"], help="[a GPU if seen]")
    parser.add_argument("--model", default="", help="for the team: a folder or hub id (Qwen3-1.7B)")
    parser.add_argument("--example", default="math", help="of examples/: math, code, search, ...")
    parser.add_argument("--steps", type=int, default=20, help="of the team's job")
    parser.add_argument("--tasks", type=int, default=100, help="held-out tasks of the team's job")
    parser.add_argument("--minutes", type=float, default=0.0, help="for all parts; 0: no limit")
    parser.add_argument("--only", default="", help=f"of {','.join(part.name for part in PARTS)}")
    parser.add_argument("--again", default="", help="parts to repeat, or `all`")
    parser.add_argument("--results", type=Path, default=None, help="file of lines")
    parser.add_argument("--quick", action="store_true", help="tiny models; without a GPU on a CPU")
    args = parser.parse_args()
    sees = torch.cuda.is_available()
    args.device = args.device or ("cuda" if sees or not args.quick else "cpu")
    if args.device == "cpu" and not args.quick:
        parser.error("--device cpu is for trying the suite: add --quick")
    if args.quick:
        args.tasks = min(args.tasks, 6)
    args.results = args.results or (TRIED if args.quick else FULL)
    unknown = {*names(args.only), *names(args.again)} - {part.name for part in PARTS} - {"all"}
    if unknown:
        parser.error(f"no part {', '.join(sorted(unknown))}; there are {parser_names()}")
    return args


def parser_names() -> str:
    """All parts."""
    return ", ".join(part.name for part in PARTS)


def names(listed: str) -> list[str]:
    """Of a list with commas."""
    return [name for name in listed.split(",") if name]


def run_all(suite: Suite, args: argparse.Namespace) -> list[dict[str, Any]]:
    """A line for each part, in order of what they tell."""
    results = Results(args.results, name_of(args.device))
    ends = time.monotonic() + args.minutes * 60 if args.minutes else None
    wanted = [part for part in PARTS if not args.only or part.name in names(args.only)]
    again = {part.name for part in wanted if {part.name, "all"} & set(names(args.again))}
    known = {
        part.name: line
        for part in wanted
        if part.name not in again and not part.is_read
        if (line := results.done(part.name, part.key(suite))) is not None
    }
    todo = [part for part in wanted if part.name not in known]
    lines: list[dict[str, Any]] = []
    for part in wanted:
        if part.name in known:
            line = known[part.name] | {"status": "done before"}
        else:
            left_s = seconds_for(part, todo, ends, time.monotonic())
            before = results.rows(part.name, part.key(suite))
            line = attempt(part, suite, left_s, anew=part.name in again, before=before)
            line = results.add(line, part.key(suite))
        lines.append(line)
        print(json.dumps(line), flush=True)
    return lines


def seconds_for(part: Part, todo: Sequence[Part], ends: float | None, now: float) -> float:
    """What ``part`` may take: its limit, but what later parts need at the least is kept for them.

    Where that is not there for all, the earlier ones go first.
    """
    if ends is None:
        return part.limit_s
    later = sum(other.least_s for other in todo[todo.index(part) + 1 :])
    left = ends - now
    return min(part.limit_s, left, max(part.least_s, left - later))


def attempt(
    part: Part, suite: Suite, left_s: float, *, anew: bool, before: Sequence[dict[str, Any]] = ()
) -> dict[str, Any]:
    """Run one part, if there is time for it; rows ``before`` are not measured again."""
    if left_s < part.least_s and not suite.quick:
        why = f"{max(0.0, left_s):.0f} s are left and it takes {part.least_s:.0f} s or more"
        return {"part": part.name, "status": "no time", "why": why, "goals": []}
    print(f"--- {part.name}: {part.what} (at most {left_s:.0f} s)", flush=True)
    return run(part, part.command(suite, left_s, anew=anew, before=before), left_s)


if __name__ == "__main__":
    main()
