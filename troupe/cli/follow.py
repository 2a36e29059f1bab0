"""Follows a job on the terminal until it ends, and prints its outcome.

Owns watching and the closing summary. Never starts or stops a process.
"""

import json
import threading
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.live import Live

from troupe.cli.notebook_panel import NotebookPanel, is_notebook
from troupe.cli.output import EXIT_FAILED, EXIT_OK, err, out
from troupe.cli.progress import Progress, clock, panel
from troupe.clients.rest import EventDocument, JobDocument, RestClient
from troupe.errors import TroupeError

_ASK_EVERY_S = 2.0
_SILENT_S = 20.0
"""Without an event for so long, and as long again, a line says what the job waits for."""


def watch(client: RestClient, job: JobDocument, *, quiet: bool = False) -> JobDocument:
    """Show the job's progress until it ends; returns the job in its final state.

    A live panel on a terminal and in a notebook, one line for each event elsewhere; when ``quiet``,
    only a note that the job is paused until somebody resumes it.
    """
    progress = Progress.of(job)
    console = err()
    waits = Waits(client, job.job_id)
    notices = _Notices(waits)
    live = None if quiet else _live(progress, job.created_at or time.time(), waits, console)
    is_live = live is not None
    with live or nullcontext(), nullcontext() if is_live or quiet else notices:
        for event in client.events(job.job_id):
            notices.heard()
            line = progress.apply(event)
            if line and not quiet and (not is_live or not line.startswith("step ")):
                console.print(line)
            if _has_paused(event) and client.job(job.job_id).state == "paused":
                console.print(
                    f"{job.job_id} is paused: nothing happens until `troupe resume {job.job_id}`; "
                    "watching until then",
                )
    return client.job(job.job_id)


def _live(
    progress: Progress, started_at: float, waits: "Waits", console: Console
) -> NotebookPanel | Live | None:
    """A panel that redraws itself, where something can show one."""
    if is_notebook():
        return NotebookPanel(progress, started_at, waits.sentence)
    if not console.is_terminal:
        return None
    return Live(
        console=console,
        get_renderable=lambda: panel(progress, started_at, waits_for=waits.sentence()),
        refresh_per_second=4,
        vertical_overflow="crop",
    )


def _has_paused(event: EventDocument) -> bool:
    """Whether ``event`` is a pause; old events come first, so the job may be running again."""
    return event.type == "job.state" and event.data.get("state") == "paused"


class _Notices:
    """Prints what the job waits for while there are no events, where no panel shows it.

    A full disk takes no events, and a large model loads for minutes.
    """

    def __init__(self, waits: "Waits") -> None:
        self._waits = waits
        self._heard_at = time.monotonic()
        self._over = threading.Event()
        self._listening = threading.Thread(target=self._listen, daemon=True)

    def __enter__(self) -> None:
        self._listening.start()

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._listening.join(_ASK_EVERY_S)

    def heard(self) -> None:
        """An event arrived: the job is not silent."""
        self._heard_at = time.monotonic()

    def _listen(self) -> None:
        is_told = False
        while not self._over.wait(_ASK_EVERY_S):
            self._waits.ask()
            sentence, phase = self._waits.sentence(), self._waits.phase
            if phase == "disk" and not is_told:
                err().print(f"disk.low: {sentence}")
            elif sentence and time.monotonic() - self._heard_at >= _SILENT_S:
                self.heard()
                err().print(f"  {sentence}")
            is_told = phase == "disk" or (is_told and not phase)


class Waits:
    """What the job waits for, polled every two seconds on a thread: drawing never blocks.

    ``phase`` is the router's latest; empty when it did not answer.
    """

    phase = ""

    def __init__(self, client: RestClient, job_id: str) -> None:
        self._client = client
        self._job_id = job_id
        self._asked_at = -_ASK_EVERY_S
        self._sentence = ""
        self._asking = threading.Lock()

    def sentence(self) -> str:
        """The router's latest sentence; empty when it did not answer."""
        is_old = time.monotonic() - self._asked_at >= _ASK_EVERY_S
        if is_old and self._asking.acquire(blocking=False):
            threading.Thread(target=self._ask_and_release, daemon=True).start()
        return self._sentence

    def ask(self) -> None:
        """Ask now."""
        try:
            waiting = self._client.progress(self._job_id).waiting
            self._sentence, self.phase = waiting.sentence, waiting.phase
        except (TroupeError, RuntimeError):
            self._sentence, self.phase = "", ""
        finally:
            self._asked_at = time.monotonic()

    def _ask_and_release(self) -> None:
        try:
            self.ask()
        finally:
            self._asking.release()


def exit_status(job: JobDocument) -> int:
    """0 for a job that succeeded, else 1."""
    return EXIT_OK if job.state == "succeeded" else EXIT_FAILED


def read_summary(run_dir: Path) -> dict[str, Any] | None:
    """The run's ``summary.json``, or None when there is none."""
    try:
        document = json.loads((run_dir / "summary.json").read_text("utf-8"))
    except (OSError, ValueError):
        return None
    return document if isinstance(document, dict) else None


def print_outcome(job: JobDocument) -> None:
    """Print how the job ended, with the numbers of its summary."""
    if job.state != "succeeded":
        reason = job.error or job.reason or "no reason was given"
        err().print(f"{job.job_id} {job.state}: {reason}")
        err().print(f"logs: {Path(job.run_dir) / 'logs'}")
        return
    run_dir = Path(job.run_dir)
    summary = read_summary(run_dir) or {}
    lines = [*_lines(summary), ("run folder", str(_relative(run_dir)))]
    if (run_dir / "curve.png").is_file():
        lines.append(("curve", str(_relative(run_dir / "curve.png"))))
    width = max(len(label) for label, _ in lines)
    console = out()
    console.print(f"{job.job_id} succeeded", style="green" if console.is_terminal else "")
    for label, value in lines:
        console.print(f"  {label:<{width}}  {value}")


def _lines(summary: dict[str, Any]) -> list[tuple[str, str]]:
    base, final = summary.get("base_success"), summary.get("final_success")
    lines: list[tuple[str, str]] = []
    if summary.get("steps") and isinstance(base, int | float) and isinstance(final, int | float):
        lines.append(("held-out success", f"{base:.1%} -> {final:.1%}"))
    elif isinstance(base, int | float):
        lines.append(("held-out success", f"{base:.1%}"))
    if isinstance(summary.get("steps"), int):
        lines.append(("steps", str(summary["steps"])))
    if isinstance(summary.get("wall_s"), int | float):
        lines.append(("wall time", clock(float(summary["wall_s"]))))
    if isinstance(summary.get("busy_ratio"), int | float):
        lines.append(("generate + learn, of the steps' time", f"{summary['busy_ratio']:.2f}"))
    dropped: dict[str, int] = summary.get("groups_dropped") or {}
    if summary.get("steps_flat"):
        or_dropped = ", or it was dropped" if dropped else ""
        text = f"{summary['steps_flat']} of {summary['steps']}: all rewards of each group equal"
        lines.append(("steps that taught nothing", text + or_dropped))
    if dropped:
        reasons = ", ".join(f"{reason} {count}" for reason, count in dropped.items())
        text = f"{sum(dropped.values())} were not learnt from: {reasons}"
        lines.append(("groups dropped", text))
    if lines and (text := _flat_share(summary)):
        lines.append(("groups that taught nothing", text))
    if summary.get("steps_truncated"):
        text = (
            f"{summary['steps_truncated']} of {summary['steps']}: most answers ran into the token "
            "limit and were judged unfinished; raise sampling.max_new_tokens (and max_tokens of a "
            "program's own calls, which lowers it)"
        )
        lines.append(("steps of cut off answers", text))
    if summary.get("steps_truncated") or (
        summary.get("steps") and summary.get("steps_flat") == summary.get("steps")
    ):
        text = "every step ran and its weights are written; not that the agents learnt"
        lines.append(("what succeeded means", text))
    return lines


def _flat_share(summary: dict[str, Any]) -> str:
    """What groups without variance cost and what to do, where they are most of all; else ""."""
    flat, trained = summary.get("groups_zero_variance") or 0, summary.get("groups_trained") or 0
    if flat <= trained:
        return ""
    final = summary.get("final_success")
    if not isinstance(final, int | float):
        way = "take tasks that are solved at times"
    elif final > 0.5:
        way = "take harder tasks, fewer tasks_per_step, or end the job earlier"
    else:
        way = "take easier tasks, or more of them with a smaller group_size"
    return (
        f"{flat} of {flat + trained}: all their answers were paid alike, which costs generation. "
        f"Set algorithm.redraws, {way}"
    )


def _relative(path: Path) -> Path:
    try:
        return path.relative_to(Path.cwd())
    except ValueError:
        return path
