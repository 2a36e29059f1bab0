"""``troupe program``: look at an agent program before it is trained: what it asks, who answers."""

from collections import Counter
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Annotated, Any

import typer

from troupe.cli import options as opt
from troupe.cli.output import EXIT_FAILED, note, out, print_json
from troupe.cli.program_export import export_program
from troupe.conformance.sandbox import sandbox_for
from troupe.errors import InvalidArgumentError, TroupeError
from troupe.spec import load_spec
from troupe.spec.job import JobSpec
from troupe.tasks.family import TaskFamily, close_environment
from troupe.tasks.program_ends import PROGRAM_END
from troupe.tasks.registry import load_family, make_environment

program_app = typer.Typer(
    no_args_is_help=True, help="Look at an agent program: run, probe, check; export a plan as one."
)
program_app.command("export")(export_program)
SHOWN_CHARS = 300

SpecFile = Annotated[Path, typer.Argument(help="Job spec whose task is `program`.")]
Index = Annotated[int, typer.Option("--task", min=0, help="Training task to run it on.")]


@program_app.callback()
def _program() -> None:
    """Look at an agent program: run, probe, check; export a plan as one."""


@program_app.command()
def probe(
    spec: SpecFile,
    index: Index = 0,
    answers: Annotated[
        list[str] | None,
        typer.Option("--answer", help="Answer to the next call; the last one is repeated."),
    ] = None,
    as_json: opt.AsJson = False,
) -> None:
    """Run the program once with given answers and print its calls, to write `seats` from."""
    with _opened(spec) as (_, _, environment):
        report: dict[str, Any] = environment.probe(_task(environment, index), answers or [])
    if as_json:
        print_json(report)
        return
    for number, call in enumerate(report["calls"], start=1):
        seat = call["agent"] or f"no seat: {call['problem']}"
        bound = "" if call["max_tokens"] is None else f", max_tokens {call['max_tokens']}"
        out().print(
            f"call {number}: {seat}\n  model {call['model']!r}, header {call['header']!r}, "
            f"tools {call['tools']}, stream {call['is_stream']}, overridden {call['overridden']}"
            f"{bound}",
        )
        for role, text in call["turns"]:
            out().print(f"  {role}: {_short(text)}")
    out().print(f"end: {report['end']}")


@program_app.command()
def run(spec: SpecFile, index: Index = 0, as_json: opt.AsJson = False) -> None:
    """Play one episode with scripted answers: who is asked, what is answered, what it pays."""
    with _opened(spec) as (job, family, environment):
        steps = [*_played(family, environment, index, seed=0)]
    if as_json:
        print_json(steps)
        return
    for step in steps:
        rewards = ", ".join(f"{name} {paid:g}" for name, paid in step["rewards"].items())
        out().print(
            f"{step['agent']}: {_short(step['prompt'])}\n  answers {_short(step['answer'])}\n"
            f"  paid team {step['team_reward']:g}{', ' if rewards else ''}{rewards}",
        )
    info = dict(steps[-1]["info"])
    traceback = info.pop("traceback", "")
    out().print(f"end: {info}\n{traceback}".rstrip())
    _note_cut_off(job, steps)


@program_app.command()
def check(
    spec: SpecFile,
    num_tasks: Annotated[int, typer.Option("--n", min=1, max=1000, help="Tasks to run.")] = 4,
    as_json: opt.AsJson = False,
) -> None:
    """Run the program twice on each task, answered the same: 1 if it asks something else."""
    problems: list[str] = []
    ends: Counter[str] = Counter()
    longest: list[Mapping[str, Any]] = []
    why = ""
    with _opened(spec) as (job, family, environment):
        for index in range(num_tasks):
            try:
                first = [*_played(family, environment, index, seed=index)]
                ends[str(first[-1]["info"].get(PROGRAM_END, "cut off"))] += 1
                longest = max(longest, first, key=len)
                if (message := first[-1]["info"].get("message")) and not why:
                    why = f"task {index}: {message}"
                environment.worlds.close()  # the second run starts from nothing
                problems += _differences(index, first, family, environment)
            except TroupeError as error:
                problems.append(f"task {index}: {error.message}")
    if as_json:
        print_json({"num_tasks": num_tasks, "problems": problems, "ends": ends})
    for problem in () if as_json else problems:
        out().print(problem)
    ended = ", ".join(f"{end} {count}" for end, count in ends.items()) or "none"
    note(f"{num_tasks} tasks run twice, {len(problems)} problems; ended: {ended}")
    if why:
        note(f"the first that failed: {_short(why)}")
    _note_cut_off(job, longest)
    if problems:
        raise typer.Exit(EXIT_FAILED)


def _note_cut_off(spec: JobSpec, steps: list[Mapping[str, Any]]) -> None:
    """Warn where training would end the episode before the program does."""
    max_turns = spec.workflow.max_turns
    for agent, count in Counter(step["agent"] for step in steps).most_common(1):
        if count > max_turns:
            note(
                f"warning: {agent} was asked {count} times, and workflow.max_turns is {max_turns}: "
                "a job ends such an episode before the program answers, so its outcome is not "
                "paid. Raise max_turns"
            )


@contextmanager
def _opened(path: Path) -> Generator[tuple[JobSpec, TaskFamily, Any]]:
    spec = load_spec(path)
    task = spec.task
    family = load_family(task.name, task.params)
    sandbox = sandbox_for(family)
    try:
        environment: Any = make_environment(family, sandbox)
        if not hasattr(environment, "probe"):
            raise InvalidArgumentError(
                f"the task of {path} is '{task.name}', which runs no agent program; give a spec "
                "whose task is 'program'",
                pointer="/task/name",
            )
        environment.taskset = family.taskset()
        try:
            yield spec, family, environment
        finally:
            close_environment(environment)
    finally:
        if sandbox is not None:
            sandbox.close()


def _task(environment: Any, index: int) -> Any:
    return environment.taskset.task("train", index)


def _played(
    family: TaskFamily, environment: Any, index: int, *, seed: int
) -> Generator[Mapping[str, Any]]:
    """The steps of one episode, each with what the agent saw."""
    rng, act = Random(seed), getattr(family, "random_action", None)
    state, is_done = environment.reset(_task(environment, index)), False
    while not is_done and act is not None:
        asked = [agent for agent in family.agents if environment.observe(state, agent)]
        if not asked:
            return
        seen = environment.observe(state, asked[0])
        answer = act(state, asked[0], rng)
        done = environment.step(state, asked[0], answer)
        state, is_done = done.state, done.done
        yield {
            "agent": asked[0],
            "prompt": "\n".join(f"{m.role}: {m.described}" for m in seen),
            "answer": answer,
            "team_reward": done.team_reward,
            "rewards": dict(done.local_rewards),
            "info": dict(done.info),
        }


def _differences(
    index: int, first: list[Mapping[str, Any]], family: TaskFamily, environment: Any
) -> list[str]:
    second = [*_played(family, environment, index, seed=index)]
    for number, (was, has) in enumerate(zip(first, second, strict=False), start=1):
        if _comparable(was) != _comparable(has):
            return [
                f"task {index}, call {number}: {_apart(was, has)}. Remove what changes from run to "
                "run, or mask it by `ignore` of that seat"
            ]
    if len(first) != len(second):
        return [f"task {index}: {len(first)} calls, then {len(second)}"]
    return []


def _comparable(step: Mapping[str, Any]) -> dict[str, Any]:
    """A step without what a framework words anew in each run, such as ids in its errors."""
    info = {k: v for k, v in step["info"].items() if k not in ("traceback", "message")}
    return {**step, "info": info}


def _apart(was: Mapping[str, Any], has: Mapping[str, Any]) -> str:
    if was["agent"] != has["agent"]:
        return f"agent {was['agent']} was asked first, then {has['agent']}"
    lines = zip(was["prompt"].splitlines(), has["prompt"].splitlines(), strict=False)
    for before, after in lines:
        if before != after:
            return f"agent {was['agent']} saw {_short(before)!r} first, then {_short(after)!r}"
    apart = [k for k in was if _comparable(was)[k] != _comparable(has)[k]]
    return f"agent {was['agent']} saw the same, and what came of it differs ({', '.join(apart)})"


def _short(text: str) -> str:
    return (
        text if len(text) <= SHOWN_CHARS else f"{text[:SHOWN_CHARS]} ... ({len(text)} characters)"
    )
