"""How many episodes of a framework's example are dropped, and the processor time of its runs.

Run: ``python -m benchmarks.program_episodes [--framework langgraph] [--shapes run,fan_out]
[--episodes 1000] [--quick]``. Plays the example's tasks by tree sampling with a policy of chance,
several episodes at once, and tries a failed one again as a job's workers do. The shapes of the
example take turns. It needs ``make program-venv NAME=langgraph``, and plays the program of
examples/programs/toy where that was not made. The last line is one JSON object; exits 0 whatever
it shows.
"""

import argparse
import asyncio
import json
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from benchmarks.program_examples import (
    EXAMPLES,
    GROUP_SIZE,
    SHAPES,
    ChancePolicy,
    python_of,
    spec_of,
)
from benchmarks.report import commit, goal, machine
from troupe.episodes.build import load_parts
from troupe.episodes.dryrun import ticket_of
from troupe.episodes.local import LocalEnv
from troupe.episodes.player import EpisodePlayer
from troupe.errors import TroupeError
from troupe.spec.job import JobSpec
from troupe_tasks.programs.activity import children_cpu_seconds, descendants
from troupe_tasks.programs.family import Program

AT_ONCE = 4
QUICK_EPISODES = 12
SHOWN_EVERY = 50
RUN_CPU_GOAL_S = 0.06


@dataclass
class Tally:
    """What the episodes of one shape came to."""

    episodes: int = 0
    dropped: Counter[str] = field(default_factory=Counter[str])
    retried: Counter[str] = field(default_factory=Counter[str])
    groups: int = 0
    runs: int = 0
    tool_calls: int = 0
    program_cpu_s: float = 0.0
    own_cpu_s: float = 0.0
    wall_s: float = 0.0

    def document(self) -> dict[str, Any]:
        """For the last line."""
        return {
            "episodes": self.episodes,
            "dropped": self.dropped,
            "retried": self.retried,
            "groups": self.groups,
            "runs": self.runs,
            "tool_calls": self.tool_calls,
            "program_cpu_s_a_run": round(self.program_cpu_s / max(1, self.runs), 4),
            "own_cpu_s_an_episode": round(self.own_cpu_s / max(1, self.episodes), 4),
            "wall_s": round(self.wall_s, 1),
        }


async def played(spec: JobSpec, num_episodes: int) -> Tally:
    """Play the job's first training tasks."""
    tally, parts, policy = Tally(), load_parts(spec), ChancePolicy()
    assert isinstance(parts.family, Program)
    _count_runs(parts.family, tally)
    with LocalEnv(parts.family, num_threads=AT_ONCE) as env:
        player = parts.player(policy, env)
        await player.play(ticket_of(spec, num_episodes))  # starts and warms up the fork server
        (fork_server,) = descendants(os.getpid())[1:2]
        tally.runs = policy.num_tool_calls = 0
        before = (children_cpu_seconds(fork_server), time.process_time(), time.monotonic())
        indices = iter(range(num_episodes))

        async def work() -> None:
            for index in indices:
                await _play(player, spec, index, tally)
                tally.episodes += 1
                if tally.episodes % SHOWN_EVERY == 0:
                    print(f"{tally.episodes}: {tally.document()}", file=sys.stderr, flush=True)

        async with asyncio.TaskGroup() as workers:
            for _ in range(AT_ONCE):
                workers.create_task(work())
        tally.tool_calls = policy.num_tool_calls
        after = (children_cpu_seconds(fork_server), time.process_time(), time.monotonic())
    tally.program_cpu_s, tally.own_cpu_s, tally.wall_s = (
        b - a for a, b in zip(before, after, strict=True)
    )
    return tally


async def _play(player: EpisodePlayer, spec: JobSpec, index: int, tally: Tally) -> None:
    for attempt in range(1, spec.limits.max_attempts + 1):
        try:
            groups = (await player.play(ticket_of(spec, index))).groups
            tally.groups += len(groups)
        except TroupeError as error:
            if error.retryable and attempt < spec.limits.max_attempts:
                tally.retried[error.reason] += 1
                continue
            tally.dropped[error.reason] += 1
            print(f"task {index}: {error.message}", file=sys.stderr, flush=True)
        return


def _count_runs(family: Program, tally: Tally) -> None:
    """Count what the family tells a process to run: each order starts one."""
    order: Callable[..., dict[str, Any]] = family.order
    lock = threading.Lock()

    def counted(*args: Any) -> dict[str, Any]:
        with lock:
            tally.runs += 1
        return order(*args)

    family.order = counted  # type: ignore[method-assign]


def main() -> None:
    """Print a table of each shape, and one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--framework", default="langgraph", choices=[*SHAPES, "toy"])
    parser.add_argument("--shapes", help="functions of team.py, comma-separated; default: all")
    parser.add_argument("--episodes", type=int, default=1000)
    parser.add_argument("--quick", action="store_true", help="few episodes, about a minute")
    told = parser.parse_args()
    name: str = told.framework if python_of(told.framework).exists() else "toy"
    shapes = told.shapes.split(",") if told.shapes else SHAPES.get(name, ("run",))
    num_episodes = QUICK_EPISODES if told.quick else told.episodes
    os.chdir(EXAMPLES)
    sys.path.insert(0, str(EXAMPLES))
    load = os.getloadavg()[0]
    tallies: dict[str, Tally] = {}
    for at, shape in enumerate(shapes):
        share = num_episodes // len(shapes) + (at < num_episodes % len(shapes))
        tallies[shape] = asyncio.run(played(spec_of(name, shape, "at_grpo"), share))
    print(
        "| shape | episodes | dropped | retried | tool calls | runs | CPU ms a run |\n"
        "|---|---|---|---|---|---|---|"
    )
    for shape, tally in tallies.items():
        cells = [tally.episodes, tally.dropped.total(), tally.retried.total()]
        cells += [tally.tool_calls, tally.runs]
        cpu_ms = 1000 * tally.program_cpu_s / max(1, tally.runs)
        print(f"| {shape} | {' | '.join(map(str, cells))} | {cpu_ms:.0f} |")
    num_dropped = sum(tally.dropped.total() for tally in tallies.values())
    cpu_s = sum(t.program_cpu_s for t in tallies.values()) / max(
        1, sum(t.runs for t in tallies.values())
    )
    document = {
        "benchmark": "program_episodes",
        "commit": commit(),
        "machine": machine(),
        "load": [round(load, 1), round(os.getloadavg()[0], 1)],
        "framework": name,
        "group_size": GROUP_SIZE,
        "at_once": AT_ONCE,
        "shapes": {shape: tally.document() for shape, tally in tallies.items()},
        "goals": [
            goal("dropped", num_dropped, 0, num_dropped == 0),
            goal("program_cpu_s_a_run", cpu_s, RUN_CPU_GOAL_S, cpu_s <= RUN_CPU_GOAL_S),
        ],
    }
    print(json.dumps(document))


if __name__ == "__main__":
    main()
