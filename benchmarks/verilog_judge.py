"""The judge of `verilog`: references are paid, circuits close to them never, and what one costs.

Run: ``python -m benchmarks.verilog_judge [--instances 200] [--quick]``. Each test task's reference
and the references of its mutants (other circuits with the same ports, each with another behaviour)
are played as a designer's answers. CPU is that of this process and of yosys in its sandbox, from
answer to verdict. Needs yosys: ``pip install 'troupe[verilog]'``. The last line is one JSON object.
"""

import argparse
import json
import os
import statistics

from benchmarks.processes import tree_cpu_s
from benchmarks.report import commit, goal, machine, percentile
from troupe import plugins
from troupe.errors import InvalidArgumentError
from troupe.tasks.family import Environment, Task
from troupe.tasks.registry import load_family, make_environment
from troupe_tasks.verilog.circuit import Circuit
from troupe_tasks.verilog.instances import circuit_of, mutants_of
from troupe_tasks.verilog.synthesis import tool_folder
from troupe_tasks.verilog.text import DESIGNER

GOAL_MS = 200.0


def judged(environment: Environment, task: Task, circuit: Circuit) -> tuple[bool, float]:
    """Whether ``circuit`` is paid as a success of ``task``, and its CPU time, ms."""
    state = environment.reset(task)
    before = tree_cpu_s(os.getpid())
    transition = environment.step(state, DESIGNER, circuit.reference)
    return transition.success, 1e3 * (tree_cpu_s(os.getpid()) - before)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m benchmarks.verilog_judge")
    parser.add_argument("--instances", type=int, default=200, help="test tasks")
    parser.add_argument("--quick", action="store_true", help="5 test tasks")
    options = parser.parse_args()
    family = load_family("verilog", {})
    try:
        tool_folder()
    except InvalidArgumentError as error:
        print(json.dumps({"benchmark": "verilog_judge", "skipped": error.message}))
        return
    sandbox = plugins.load(plugins.SANDBOXES, "local")()
    costs: list[float] = []
    num_right = num_mutants = num_paid = 0
    num_tasks = 5 if options.quick else options.instances
    try:
        environment, taskset = make_environment(family, sandbox), family.taskset()
        for index in range(num_tasks):
            task = taskset.task("test", index)
            text = task.payload.decode()
            is_paid, cost = judged(environment, task, circuit_of(text))
            num_right += is_paid
            costs.append(cost)
            for mutant in mutants_of(text):
                is_paid, cost = judged(environment, task, mutant)
                num_mutants += 1
                num_paid += is_paid
                costs.append(cost)
                if is_paid:
                    print(f"test/{index}: paid for {mutant.words}")
    finally:
        sandbox.close()
    right, median = num_right / num_tasks, statistics.median(costs)
    report = {
        "benchmark": "verilog_judge",
        "commit": commit(),
        "machine": machine(),
        "n": num_tasks,
        "mutants": num_mutants,
        "cpu_ms_p99": round(percentile(costs, 0.99), 1),
        "goals": [
            goal("references that are paid", right, 1.0, right == 1.0),
            goal("mutants that are paid", num_paid, 0, not num_paid),
            goal("CPU of a judgement, ms, p50", round(median, 1), GOAL_MS, median < GOAL_MS),
        ],
    }
    print(json.dumps(report))


if __name__ == "__main__":
    main()
