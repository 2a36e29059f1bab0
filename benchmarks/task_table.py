"""The table of docs/tasks/README.md: what each family's players reach and what its steps cost.

Run: ``python -m benchmarks.task_table [sql search ...] [--n 200] [--quick]``. For each family:
success of the scripted and the random player on test tasks, attackers of ``troupe audit`` that are
paid, the largest state, CPU time of a step in this process. Licence and published data are those
of ``PUBLISHED``. Prints the rows in Markdown; the last line is one JSON object.
"""

import argparse
import json
import statistics
import sys
import time
from random import Random
from typing import Any

from benchmarks.report import commit, goal, machine, percentile
from troupe import plugins
from troupe.conformance.audit import AuditLimits, audit_family
from troupe.errors import InvalidArgumentError
from troupe.evaluation.estimators import wilson
from troupe.sandbox.sandbox import Sandbox
from troupe.tasks.family import SandboxedTaskFamily, TaskFamily
from troupe.tasks.registry import load_family, make_environment
from troupe.tasks.usual import usual_workflow

PUBLISHED = {
    "sql": (
        "none of its own; Spider and BIRD CC BY-SA 4.0",
        "Spider `dev.json` whole: 1,034 of 1,034 rows, gold queries run in the guard",
    ),
    "search": (
        "none of its own; HotpotQA CC BY-SA 4.0, 2Wiki Apache-2.0, MuSiQue CC BY 4.0",
        "no whole file: 200 of 200 published HotpotQA rows (100 of train, 100 of dev), "
        "100 of 100 of MuSiQue; 2Wiki none",
    ),
    "tools": (
        "none of its own; tau2-bench MIT",
        "tau2 retail whole: 68 of 114 tasks, airline whole: 21 of 50, "
        "those that the database decides",
    ),
    "build": (
        "none of its own; LLM_Collab_Minecraft MIT",
        "both files whole: 10 of 10 and 10 of 10",
    ),
    "verilog": (
        "none of its own; yosys ISC; VerilogEval MIT",
        "VerilogEval v2 whole: 135 of 156 problems",
    ),
    "discovery": ("none of its own; LLM-SRBench: its card", "no"),
    "carry": ("none of its own; MuJoCo Apache-2.0", "no"),
    "repair": ("packages made here: the project's", "none: mutations are drawn"),
}
"""Licence of the data, and what published data was read whole."""

HEAD = (
    "| family | scripted | random | paid attackers | state, bytes | CPU a step, ms: median, p99 | "
    "licence | "
    "published data read |\n|---|---|---|---|---|---|---|---|"
)


def players(family: TaskFamily, sandbox: Sandbox | None, count: int) -> dict[str, Any]:
    """Play test tasks with the family's script and its random actions."""
    taskset, env = family.taskset(), make_environment(family, sandbox)
    workflow = usual_workflow(family)
    solved: dict[str, int] = {"demonstrate": 0, "random_action": 0}
    largest, costs = 0, list[float]()
    for name in solved:
        policy = getattr(family, name)
        for index in range(count):
            state, rng = env.reset(taskset.task("test", index)), Random(f"{name}/{index}")
            env.observe(state, workflow.order[0])  # makes what the instance keeps
            for number in range(workflow.max_turns * len(workflow.order)):
                agent = workflow.order[number % len(workflow.order)]
                action = policy(state, agent, rng)
                begun = time.process_time()
                done = env.step(state, agent, action)
                costs.append(1e3 * (time.process_time() - begun))
                state, largest = done.state, max(largest, len(done.state))
                if done.done:
                    break
            solved[name] += done.success
    shares = {name: wilson(number / count, count, 0.95) for name, number in solved.items()}
    return {
        "scripted": solved["demonstrate"] / count,
        "random": solved["random_action"] / count,
        "scripted_from": shares["demonstrate"][0],
        "random_to": shares["random_action"][1],
        "state_bytes": largest,
        "step_ms": statistics.median(costs),
        "step_p99_ms": percentile(costs, 0.99),
    }


def row(name: str, family: TaskFamily, sandbox: Sandbox | None, count: int) -> dict[str, Any]:
    found = players(family, sandbox, count)
    is_costly = isinstance(family, SandboxedTaskFamily)
    limits = AuditLimits(2, 0) if is_costly else AuditLimits(min(20, count))
    report = audit_family(family, sandbox=sandbox, limits=limits)
    found |= {"family": name, "paid": len(report.findings), "attackers": len(report.attackers)}
    licence, read = PUBLISHED.get(name, ("", ""))
    print(
        f"| `{name}` | {found['scripted']:.1%} | {found['random']:.1%} | {found['paid']} of "
        f"{found['attackers']} | {found['state_bytes']:,} | {found['step_ms']:.1f}, "
        f"{found['step_p99_ms']:.1f} | {licence} | {read} |",
        flush=True,
    )
    return found


def rows_of_all(count: int) -> list[dict[str, Any]]:
    """The rows of all families whose packages this machine has; names the others."""
    rows: list[dict[str, Any]] = []
    for name in PUBLISHED:
        try:
            rows += rows_of([name], count)
        except InvalidArgumentError as error:
            print(f"{name}: not measured: {error.message}", file=sys.stderr)
    return rows


def rows_of(names: list[str], count: int) -> list[dict[str, Any]]:
    """The rows of ``names``."""
    loaded = {name: load_family(name, {}) for name in names}
    sandbox: Sandbox | None = None
    if any(isinstance(family, SandboxedTaskFamily) for family in loaded.values()):
        sandbox = plugins.load(plugins.SANDBOXES, "local")()
    try:
        return [row(name, family, sandbox, count) for name, family in loaded.items()]
    finally:
        if sandbox is not None:
            sandbox.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("families", nargs="*", help="registered tasks; default: those with a row")
    parser.add_argument("--n", type=int, default=200, help="test tasks of each player")
    parser.add_argument("--quick", action="store_true", help="10 tasks")
    options = parser.parse_args()
    count = 10 if options.quick else options.n
    print(HEAD)
    rows = rows_of(options.families, count) if options.families else rows_of_all(count)
    goals = [
        goal(f"{found['family']}: {player}", found[player], wanted, holds)
        for found in rows
        for player, wanted, holds in (
            ("scripted", 0.95, found["scripted"] > 0.95),
            ("random", 0.05, found["random"] < 0.05),
            ("paid", 0, found["paid"] == 0),
        )
    ]
    report = {"benchmark": "task_table", "commit": commit(), "machine": machine(), "n": count}
    print(json.dumps(report | {"rows": rows, "goals": goals}))


if __name__ == "__main__":
    main()
