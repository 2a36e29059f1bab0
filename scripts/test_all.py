#!/usr/bin/env python3
"""Runs every suite and quick benchmark that this machine can, and records the outcomes.

    python3.11 scripts/test_all.py                    # all; writes docs/testing-status.md
    python3.11 scripts/test_all.py --only test,chart  # some; the other rows of the page stay

Each row names outcome, counts, seconds and, where a suite could not run, why. A suite whose tests
were all skipped is not green. What a suite needs is installed first, where this machine lets it.
"""

import argparse
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from benchmarks.record import NOT_QUICK, benchmarks

REPO = Path(__file__).resolve().parent.parent
PAGE = REPO / "docs" / "testing-status.md"
LOGS = REPO / "build" / "test-all"
DOCKER = REPO / "scripts" / "docker_engine.py"
_COUNTS = re.compile(r"(\d+) (passed|failed|errors?|skipped|deselected|xfailed)")
_SUMMARY = re.compile(
    r"^=*\s*(?=.*\bin \d[\d.]*s\b)(.*\d+ (?:passed|failed|error|skipped).*)", re.M
)
_REASON = re.compile(r"^SKIPPED \[\d+\] \S+: (.*)", re.M)
_ROW = re.compile(r"^\| `([^`]+)` \|")


@dataclass(frozen=True, slots=True)
class Suite:
    """One command of this project. ``apt`` are packages that root installs where they lack.

    ``has_tests``: pytest's summary is read, and a run that passed no test is not green.
    """

    name: str
    command: tuple[str, ...]
    limit_s: float = 1800.0
    programs: tuple[str, ...] = ()
    apt: tuple[str, ...] = ()
    has_tests: bool = True
    needs_docker: bool = False
    needs_root: bool = False


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one suite went: ``state`` is green, red or not run."""

    name: str
    state: str
    counts: str
    seconds: float
    note: str
    commit: str
    date: str

    def row(self) -> str:
        """The line of the page."""
        note = self.note.replace("|", "/")
        return (
            f"| `{self.name}` | {self.state} | {self.counts} | {self.seconds:.0f} | "
            f"{self.commit} | {self.date} | {note} |"
        )


SUITES = (
    Suite("make check", ("make", "check"), has_tests=False),
    Suite("make docs", ("make", "docs"), has_tests=False),
    Suite("make test", ("make", "test")),
    Suite("make test-slow", ("make", "test-slow"), limit_s=3600),
    Suite("make test-sandbox", ("make", "test-sandbox")),
    Suite("make chaos-quick", ("make", "chaos-quick")),
    Suite("make test-upgrade", ("make", "test-upgrade")),
    Suite("make test-chart", ("make", "test-chart")),
    Suite("make test-observability", ("make", "test-observability")),
    Suite("make test-browser", ("make", "test-browser"), programs=("chromium",), apt=("chromium",)),
    Suite("make test-notebook", ("make", "test-notebook")),
    Suite("make test-programs", ("make", "test-programs"), limit_s=3600),
    Suite("make test-sglang", ("make", "test-sglang"), limit_s=3600),
    Suite("make test-k8s", ("make", "test-k8s"), limit_s=3600),
    Suite("make test-compose", ("make", "test-compose"), limit_s=3600, needs_docker=True),
    Suite("make test-cluster", ("make", "test-cluster"), limit_s=5400, needs_root=True),
    Suite("make audit", ("make", "audit"), has_tests=False),
)
LONG = ("make chaos (50 min)", "make soak (2 h)", "make fuzz (2 h)")
"""Never run here: each takes longer than all of the above; `nightly` runs them."""


def main(arguments: Sequence[str]) -> int:
    """Run, print a line a suite and write the page; 1 where a suite is red."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", default="", help="suites whose names contain one of these words")
    parser.add_argument("--list", action="store_true", help="name the suites and end")
    options = parser.parse_args(arguments)
    words = [word for word in options.only.split(",") if word]
    suites = [
        s for s in (*SUITES, *quick_benchmarks()) if not words or any(w in s.name for w in words)
    ]
    if options.list:
        print("\n".join(suite.name for suite in suites))
        return 0
    outcomes: dict[str, Outcome] = {}
    for suite in suites:
        outcome = run(suite)
        outcomes[suite.name] = outcome
        print(
            f"{outcome.state:8} {outcome.seconds:6.0f} s  {outcome.name}: "
            f"{'; '.join(filter(None, (outcome.counts, outcome.note)))}",
            flush=True,
        )
        write_page(outcomes)
    return int(any(outcome.state == "red" for outcome in outcomes.values()))


def quick_benchmarks() -> list[Suite]:
    """The quick form of every benchmark; each keeps its line in benchmarks/README.md."""
    return [
        Suite(
            f"benchmarks.{name} --quick",
            (sys.executable, "-m", "benchmarks.record", name, "--quick"),
            limit_s=600,
            has_tests=False,
        )
        for name in benchmarks()
        if name not in NOT_QUICK
    ]


def run(suite: Suite) -> Outcome:
    """Install what lacks, run the suite, and read what came of it."""
    started = time.monotonic()
    why = _prepare(suite)
    state, counts, note = "not run", "", why
    if not why:
        status, text = _capture(suite)
        state, counts, note = judge(suite, status, text)
    date = datetime.now(UTC).date().isoformat()
    seconds = time.monotonic() - started
    return Outcome(suite.name, state, counts, seconds, note, _commit(), date)


def judge(suite: Suite, status: int | None, text: str) -> tuple[str, str, str]:
    """(state, counts, note) of a run that ended with ``status``; None: it was stopped."""
    if status is None:
        return "red", "", f"stopped after {suite.limit_s:.0f} s"
    log = f"log: build/test-all/{_file_name(suite)}"
    if not suite.has_tests:
        return ("green", "", "") if status == 0 else ("red", "", f"exit status {status}; {log}")
    summaries = _SUMMARY.findall(text)
    counts: Mapping[str, int] = (
        {kind.rstrip("s"): int(number) for number, kind in _COUNTS.findall(summaries[-1])}
        if summaries
        else {}
    )
    shown = ", ".join(f"{number} {kind}" for kind, number in counts.items())
    if status == 0 and counts.get("passed", 0) > 0:
        return "green", shown, ""
    if status in (0, 5) and not counts.get("passed"):
        reasons = sorted(set(_REASON.findall(text)))
        return "not run", shown, "; ".join(reasons[:2]) or "no test ran"
    return "red", shown, f"exit status {status}; {log}"


def write_page(outcomes: Mapping[str, Outcome]) -> None:
    """The page with new rows for what ran; rows of other suites stay as they were."""
    rows = _old_rows() | {name: outcome.row() for name, outcome in outcomes.items()}
    order = [suite.name for suite in (*SUITES, *quick_benchmarks())]
    listed = [rows[name] for name in order if name in rows]
    skipped = [f"- `benchmarks.{name}`: {why}" for name, why in sorted(NOT_QUICK.items())]
    lines = [
        "# Testing status",
        "",
        "Written by `make test-all` (`scripts/test_all.py`): what ran last, on which commit,",
        "and how it went. Where a suite was not run, its note says why.",
        f"Machine of the last run: {_machine()}.",
        "",
        "| suite | outcome | tests | seconds | commit | date | note |",
        "|---|---|---|---|---|---|---|",
        *listed,
        "",
        "Not part of it:",
        "",
        *(f"- `{name}`: the workflow `nightly` runs it" for name in LONG),
        *skipped,
        "",
    ]
    PAGE.write_text("\n".join(lines), encoding="utf-8")


def _old_rows() -> dict[str, str]:
    if not PAGE.exists():
        return {}
    lines = PAGE.read_text("utf-8").splitlines()
    return {match[1]: line for line in lines if (match := _ROW.match(line))}


def _prepare(suite: Suite) -> str:
    """Why the suite cannot run, or nothing."""
    if suite.needs_root and os.geteuid() != 0:
        return "needs root"
    if suite.apt and not any(map(shutil.which, suite.programs)):
        _install(suite.apt)
        if not any(map(shutil.which, suite.programs)):
            return f"no {' or '.join(suite.programs)}, and apt-get could not install it"
    if suite.needs_docker:
        started = _docker("start")
        return _last_line(started.stderr) if started.returncode else ""
    return ""


def _install(packages: Sequence[str]) -> None:
    if os.geteuid() == 0 and shutil.which("apt-get"):
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        command = ["apt-get", "install", "--yes", "--no-install-recommends", *packages]
        if subprocess.run(command, check=False, timeout=900, **quiet).returncode:
            subprocess.run(["apt-get", "update"], check=False, timeout=600, **quiet)
            subprocess.run(command, check=False, timeout=900, **quiet)


def _docker(what: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(DOCKER), what],
        check=False,
        capture_output=True,
        text=True,
        timeout=1200,
    )


def _capture(suite: Suite) -> tuple[int | None, str]:
    LOGS.mkdir(parents=True, exist_ok=True)
    path = LOGS / _file_name(suite)
    with path.open("w", encoding="utf-8") as log:
        process = subprocess.Popen(
            suite.command,
            cwd=REPO,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            status = process.wait(timeout=suite.limit_s)
        except subprocess.TimeoutExpired:
            status = None
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
    return status, path.read_text("utf-8", errors="replace")


def _file_name(suite: Suite) -> str:
    return re.sub(r"\W+", "-", suite.name).strip("-") + ".log"


def _last_line(text: str) -> str:
    return text.strip().rpartition("\n")[2]


def _commit() -> str:
    answer = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"],
        cwd=REPO,
        capture_output=True,
        text=True,
        check=False,
    )
    return answer.stdout.strip() or "unknown"


def _machine() -> str:
    model = ""
    for line in Path("/proc/cpuinfo").read_text("utf-8").splitlines():
        if line.startswith("model name"):
            model = line.partition(":")[2].strip()
            break
    return (
        f"{model or platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
