"""Train for long while something is killed each minute; what it costs, and whether anything grows.

``PYTHONPATH=tests:. python tests/chaos/soak.py``: about two hours. One platform, one job of
Plan-Path on the ``cpu`` engine. First the job trains undisturbed for ``--quiet`` seconds, then each
``--every`` seconds the next of trainer, rollout, env, router and Valkey is killed.
Tells each kill, and at the end each missed goal, on stderr; prints one JSON line; exits 1 when a
goal is missed.
"""

import argparse
import json
import os
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path
from statistics import median
from typing import Any

from chaos_cases import COMPONENTS
from platform_world import Platform, make_tiny_base, run_platform, tiny_spec
from process_tree import adopting, descendants
from soak_watch import GROWTH, Watch

from benchmarks.report import clean_up_on_sigterm, commit, goal, machine, percentile
from troupe.clients.rest import TERMINAL
from troupe.errors import TroupeError

LOOK_S = 5.0
MAX_LOADED = 4
"""Versions that the engine may hold of a policy: serving, staged, and what a request still uses."""


@dataclass
class Soak:
    """One soak: what was killed, and the step at which that began."""

    watch: Watch
    quiet_s: float
    every_s: float
    kills: list[str] = field(default_factory=list[str])
    quiet_steps: int = 0
    began: float = field(default_factory=time.monotonic)

    @property
    def elapsed_s(self) -> float:
        """Since the job was submitted."""
        return time.monotonic() - self.began

    def run(self, until: float) -> str:
        """Kill and look until the job is over or ``until`` (monotonic); the job's last state."""
        victims: Iterator[str] = cycle(("trainer", "rollout", "env", "router", "redis"))
        kill_at = self._first_step(until) + self.quiet_s
        state = ""
        while time.monotonic() < until and state not in TERMINAL:
            time.sleep(LOOK_S)
            self.watch.look()
            if time.monotonic() >= kill_at:
                self._kill(next(victims))
                kill_at = time.monotonic() + self.every_s
            with suppress(TroupeError), self.watch.platform.client(retry_for_s=60) as client:
                state = client.job(self.watch.job_id).state
        return state

    def _first_step(self, until: float) -> float:
        """When the first step was learnt: what came before is the start."""
        while time.monotonic() < until and not self._steps():
            time.sleep(0.2)
        self._tell(f"{len(self._steps())} steps, the first kill comes in {self.quiet_s:.0f} s")
        return time.monotonic()

    def _steps(self) -> list[dict[str, Any]]:
        return steps_of(self.watch.platform.run_dir(self.watch.job_id))

    def _kill(self, role: str) -> None:
        watch = self.watch
        num_steps = len(self._steps())
        with suppress(OSError, TypeError, ValueError):
            os.kill(watch.platform.pid_of(watch.job_id, COMPONENTS[role]), signal.SIGKILL)
            self.quiet_steps = self.quiet_steps or num_steps
            self.kills.append(role)
            self._tell(f"{num_steps} steps, {role} killed")

    def _tell(self, what: str) -> None:
        """A line of progress."""
        print(f"soak: {self.elapsed_s / 60:.1f} min: {what}", file=sys.stderr, flush=True)


def steps_of(run_dir: Path) -> list[dict[str, Any]]:
    """Training lines of metrics.jsonl."""
    return [line for line in lines_of(run_dir / "metrics.jsonl") if line["kind"] == "train"]


def lines_of(path: Path) -> list[dict[str, Any]]:
    """The lines of a run's file, which is not there before the first of them."""
    if not path.is_file():
        return []
    return [json.loads(line) for line in path.read_text().splitlines()]


def effective_ratio(walls: list[float], num_quiet: int) -> float:
    """Time that the steps since the first kill would have taken undisturbed over what they took.

    Undisturbed, a step takes the median of the 15 steps around it: the first ones are no measure,
    for an agent that learns plays shorter episodes. Steps must be much shorter than the pause
    between kills. A step's time ends when the next round opens, so every recovery is inside one.
    """
    disturbed = range(num_quiet, len(walls))
    undisturbed = sum(median(walls[max(0, i - 7) : i + 8]) for i in disturbed)
    return round(min(1.0, undisturbed / sum(walls[num_quiet:])), 3)


def report(soak: Soak, state: str, elapsed_s: float, strays: int, wanted: int) -> dict[str, Any]:
    """What the soak prints."""
    watch = soak.watch
    run_dir = watch.platform.run_dir(watch.job_id)
    steps = steps_of(run_dir)
    lines = lines_of(run_dir / "groups.jsonl")
    groups = [name for line in lines for name in line["group_ids"]]
    walls = [step["wall_s"] for step in steps]
    num_disturbed = len(steps) - soak.quiet_steps if soak.kills else 0
    duplicated = len(groups) - len(set(groups))
    numbers = list(range(len(steps)))
    is_whole = [x["step"] for x in steps] == [x["step"] for x in lines] == numbers
    goals = [
        goal("succeeded", state == "succeeded", True, state == "succeeded"),
        goal("steps", len(steps), wanted, len(steps) == wanted),
        goal("every_step_once_in_order", is_whole, True, is_whole),
        goal("steps_since_the_first_kill", num_disturbed, 1, num_disturbed >= 1),
        goal("groups_duplicated", duplicated, 0, duplicated == 0),
        goal("stray_processes", strays, 0, strays == 0),
        goal("loaded_versions", held := watch.loaded_versions, MAX_LOADED, held <= MAX_LOADED),
        *(goal(f"{n}_growth", x, GROWTH, x <= GROWTH) for n, x in watch.growths().items()),
    ]
    if num_disturbed:
        ratio = effective_ratio(walls, soak.quiet_steps)
        goals.append(goal("effective_training_ratio", ratio, 0.9, ratio >= 0.9))
    if state in TERMINAL:  # a job that was cut off keeps its keys
        left = watch.keys_left()
        goals.append(goal("redis_keys_left", len(left), 0, not left))
    return {
        "benchmark": "soak",
        "commit": commit(),
        "machine": machine(),
        "load": round(os.getloadavg()[0], 1),
        "state": state,
        "minutes": round(elapsed_s / 60, 1),
        "n": len(steps),
        "median": median(walls) if walls else None,
        "spread": [percentile(walls, 0.05), percentile(walls, 0.95)] if walls else None,
        "kills": {role: soak.kills.count(role) for role in dict.fromkeys(soak.kills)},
        "groups": len(set(groups)),
        "goals": goals,
    }


def verdict(found: dict[str, Any]) -> list[str]:
    """Each missed goal in words, and what to change where little was tried."""
    lines = [
        f"missed: {each['name']} is {each['value']}, the goal {each['goal']}"
        for each in found["goals"]
        if not each["holds"]
    ]
    if found["state"] not in TERMINAL:
        lines.append(
            "The job was cut off while it ran, so its Redis keys are not judged: give it more "
            "--minutes, or fewer --steps or --tasks."
        )
    if not found["kills"]:
        lines.append(
            "Nothing was killed, for it was over before the first kill: give it more --steps, "
            "--tasks or --minutes, or a shorter --quiet."
        )
    return lines


def num_strays(platform: Platform) -> int:
    """Processes below this one that are none of the platform's own, now that the job is over."""
    own = {platform.pid_of("", name) for name in ("router", "redis")}
    supervisor = platform.folder / "runs" / ".troupe" / "supervisor.json"
    own.add(int(json.loads(supervisor.read_text())["pid"]))
    return len(descendants(os.getpid()) - own)


def free_port() -> int:
    """A free TCP port on loopback."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def arguments() -> argparse.Namespace:
    """What was asked for, every number more than 0."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=170.0, help="at most")
    parser.add_argument("--steps", type=int, default=720)
    parser.add_argument("--tasks", type=int, default=1000, help="episodes a step: how long one is")
    parser.add_argument("--every", type=float, default=60.0, help="seconds between kills")
    parser.add_argument("--quiet", type=float, default=60.0, help="seconds before the first kill")
    asked = parser.parse_args()
    for name, value in vars(asked).items():
        if not value > 0:
            parser.error(f"--{name} must be more than 0, not {value}")
    return asked


def main() -> None:
    """Soak as the arguments say."""
    asked = arguments()
    clean_up_on_sigterm()
    with tempfile.TemporaryDirectory() as folder, adopting():
        spec = tiny_spec(make_tiny_base(Path(folder) / "tiny"))
        size = {"steps": asked.steps, "tasks_per_step": asked.tasks}
        spec |= {**size, "eval": {"num_tasks": 0}}
        home, scratch = Path(folder) / "platform", Path(folder) / "scratch"
        home.mkdir()
        scratch.mkdir()
        with run_platform(home, free_port, {"TMPDIR": str(scratch)}) as platform:
            with platform.client() as client:
                job_id = client.submit(spec).job_id
            soak = Soak(Watch(platform, job_id, scratch), asked.quiet, asked.every)
            state = soak.run(soak.began + asked.minutes * 60)
            elapsed_s = soak.elapsed_s
            with platform.client(retry_for_s=120) as client:
                if client.job(job_id).state not in TERMINAL:
                    client.cancel(job_id)
                    for _ in client.events(job_id):
                        pass
            found = report(soak, state, elapsed_s, num_strays(platform), asked.steps)
    for line in verdict(found):
        print(f"soak: {line}", file=sys.stderr)
    print(json.dumps(found))
    sys.exit(not all(each["holds"] for each in found["goals"]))


if __name__ == "__main__":
    main()
