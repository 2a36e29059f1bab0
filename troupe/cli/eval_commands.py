"""``troupe eval``: success on held-out tasks, of a job's weights or of any policies.

Owns the command's flags. The first form (a run folder or a spec) runs a job of zero steps on the
platform; the second (``--task`` and ``--policy``) plays in this process: see eval_run.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from troupe.bundles import Bundle, read_bundle
from troupe.cli import options as opt
from troupe.cli.eval_run import EvalFlags, run_evaluation
from troupe.cli.settings import settings_from
from troupe.cli.specs import read_spec, with_local_paths, with_overrides
from troupe.cli.train_commands import Begin, run_folder, run_job, submitting
from troupe.errors import InvalidArgumentError, NotFoundError
from troupe.spec import JobSpec, load_spec, parse_spec
from troupe.spec.dtypes import submitted
from troupe.training.task import TASK_NAME

_SECOND_FORM = "With --task and --policy, or --team"


def _option(flags: str, help: str, **more: object) -> object:
    return typer.Option(*flags.split(), help=help, rich_help_panel=_SECOND_FORM, **more)  # pyright: ignore[reportArgumentType]


_What = Annotated[Path | None, typer.Argument(help="Run folder of a job, or a job spec.")]
_NumTasks = Annotated[
    int | None, typer.Option("--num-tasks", "--n", "-n", min=1, help="Held-out tasks [200].")
]
_Split = Annotated[str | None, typer.Option(help="validation or test [test].")]
_Task = Annotated[str | None, _option("--task", "Task family.")]
_Params = Annotated[str | None, _option("--params", "Its parameters, JSON.")]
_Policy = Annotated[
    list[str] | None,
    _option(
        "--policy",
        "scripted, random, a model folder or hub id, an adapter folder, a run folder, a folder of "
        "`troupe export`, URL#MODEL or openai:MODEL; agent=POLICY,agent=POLICY for a mixed team. "
        "Repeat it for a table.",
    ),
]
_TeamName = Annotated[
    str | None,
    _option(
        "--team",
        "A published team or a run folder: its task, workflow and sampling, its adapters on their "
        "base. FOLDER, hub:ORG/NAME or oci:HOST/REPOSITORY:TAG.",
    ),
]
_NumSamples = Annotated[
    int | None, _option("--num-samples --k -k", "Samples of each task [1].", min=1)
]
_FirstTask = Annotated[int | None, _option("--first-task", "Index of the first task [0].", min=0)]
_Seed = Annotated[int | None, _option("--seed", "Seed of everything random [0].", min=0)]
_Order = Annotated[str | None, _option("--agents", "The team in its order, a,b [the family's].")]
_Workflow = Annotated[str | None, _option("--workflow", "Workflow [the family's].")]
_MaxTurns = Annotated[
    int | None, _option("--max-turns", "Turns of an episode [the family's].", min=1)
]
_Temperature = Annotated[float | None, _option("--temperature", "0 is greedy [1].", min=0.0)]
_TopP = Annotated[float | None, _option("--top-p", "Nucleus mass [1].")]
_MaxNewTokens = Annotated[int | None, _option("--max-new-tokens", "Of one answer [256].", min=1)]
_Base = Annotated[
    str | None, _option("--base", "Model that adapters belong to [adapter_config.json's].")
]
_BaseUrl = Annotated[
    str | None, _option("--base-url", "Server of openai:MODEL [TROUPE_OPENAI_BASE_URL].")
]
_Engine = Annotated[str | None, _option("--engine", "Engine for weights [cpu].")]
_Dtype = Annotated[str | None, _option("--dtype", "float32 or bfloat16, for weights [float32].")]
_InFlight = Annotated[int | None, _option("--in-flight", "Episodes played at once [64].", min=1)]
_Target = Annotated[
    Path | None,
    _option("--out", "Folder of the results; the same one again goes on [evals/TASK-TIME]."),
]


def evaluate(
    what: _What = None,
    num_tasks: _NumTasks = None,
    split: _Split = None,
    overrides: opt.Overrides = None,
    runs_dir: opt.RunsDir = None,
    redis_url: opt.RedisUrl = None,
    port_base: opt.PortBase = None,
    ports: opt.Ports = None,
    as_json: opt.AsJson = False,
    task: _Task = None,
    params: _Params = None,
    policy: _Policy = None,
    team: _TeamName = None,
    num_samples: _NumSamples = None,
    first_task: _FirstTask = None,
    seed: _Seed = None,
    order: _Order = None,
    workflow: _Workflow = None,
    max_turns: _MaxTurns = None,
    temperature: _Temperature = None,
    top_p: _TopP = None,
    max_new_tokens: _MaxNewTokens = None,
    base: _Base = None,
    base_url: _BaseUrl = None,
    engine: _Engine = None,
    dtype: _Dtype = None,
    in_flight: _InFlight = None,
    target: _Target = None,
) -> None:
    """Measure success on held-out tasks.

    `troupe eval RUN_OR_SPEC`: on the platform; `--task T --policy P` or `--team`: no services.
    """
    eval_flags = EvalFlags(
        task=task,
        params=params,
        policies=policy,
        num_tasks=num_tasks,
        num_samples=num_samples,
        split=split,
        first_task=first_task,
        seed=seed,
        order=order,
        workflow=workflow,
        max_turns=max_turns,
        temperature=temperature,
        top_p=top_p,
        max_new_tokens=max_new_tokens,
        base=base,
        base_url=base_url,
        engine=engine,
        dtype=dtype,
        in_flight=in_flight,
        target=target,
        team=team,
    )
    platform = {"redis_url": redis_url, "port_base": port_base, "ports": ports}
    raise typer.Exit(_run(what, eval_flags, overrides or [], runs_dir, platform, as_json=as_json))


def _run(
    what: Path | None,
    eval_flags: EvalFlags,
    overrides: list[str],
    runs_dir: Path | None,
    platform: Mapping[str, Any],
    *,
    as_json: bool,
) -> int:
    if what is None:
        platform = {"runs_dir": runs_dir, **platform}
        return _evaluate_policies(eval_flags, overrides, platform, as_json=as_json)
    begin = _job_of(what, eval_flags, overrides)
    return run_job(settings_from(runs_dir=runs_dir, **platform), begin, as_json=as_json)


def _job_of(what: Path, eval_flags: EvalFlags, overrides: list[str]) -> Begin:
    """The job of zero steps that evaluates ``what``."""
    _refuse_flags(what, eval_flags)
    spec = evaluation_spec(what, eval_flags.num_tasks, eval_flags.split, overrides)
    bundle = _bundle_of(what, spec) if what.is_dir() else None
    return submitting(with_local_paths(spec), bundle)


def _bundle_of(what: Path, spec: JobSpec) -> Bundle | None:
    """The code that was submitted with the run in ``what``; None for a run without."""
    if spec.bundle is None:
        return None
    path = run_folder(what) / "bundle.tar"
    if not path.is_file():
        raise NotFoundError(
            f"{what} has no bundle.tar, the code that its job came with; bring the folder back, or "
            "evaluate with the code at hand: troupe eval --task FILE:CLASS --policy RUN"
        )
    archive = path.read_bytes()
    return read_bundle(archive, digest=spec.bundle.digest, max_bytes=len(archive))


def _evaluate_policies(
    eval_flags: EvalFlags,
    overrides: list[str],
    platform: Mapping[str, object],
    *,
    as_json: bool,
) -> int:
    for name, value in platform.items():
        if value is not None:
            raise InvalidArgumentError(
                f"--{name.replace('_', '-')} belongs to `troupe eval RUN_OR_SPEC`; remove it"
            )
    for override in overrides:
        if not override.startswith("task.params."):
            raise InvalidArgumentError(
                f"--set {override!r}: with --task only the task's parameters can be set so, for "
                "example --set task.params.NAME=VALUE; see `troupe eval --help` for the other flags"
            )
    return run_evaluation(eval_flags, overrides, as_json=as_json)


def _refuse_flags(what: Path, eval_flags: EvalFlags) -> None:
    if flags := eval_flags.flags_of_task_form():
        raise InvalidArgumentError(
            f"{', '.join(flags)} cannot be combined with {what}: a run or a spec sets it "
            f"(change fields with --set); to evaluate any policy, leave {what} out, or give it as "
            f"--policy {what}"
        )


def evaluation_spec(
    what: Path, num_tasks: int | None, split: str | None, overrides: list[str]
) -> JobSpec:
    """A job of zero steps, over the weights in ``what``."""
    if what.is_dir():
        folder = run_folder(what)
        spec = load_spec(folder / "spec.json")
        if spec.task.name == TASK_NAME:
            raise InvalidArgumentError(
                f"the reward of {folder.name} is a Python function of the process that called "
                "troupe.train, which is not here; its evaluations are in run.evaluations of "
                f"troupe.open_run({str(what)!r}), and held_out= of troupe.train makes them"
            )
        document = spec.model_dump(mode="json")
        for name, policy in document["policies"].items():
            merged = folder / "policies" / name / "merged"
            if not (merged / "config.json").is_file():
                raise NotFoundError(
                    f"{what} holds no exported model of policy '{name}' ({merged}); evaluate a job "
                    "that has succeeded, or a spec"
                )
            policy["model"] = str(merged)
        document = with_overrides(document, overrides)
    else:
        document = submitted(read_spec(what, [*overrides, "steps=0"]))
    document["name"] = f"{document['name'][:35]}-eval"
    document["steps"] = 0
    changes = {"num_tasks": num_tasks, "split": split, "every": 0}
    document["eval"] |= {key: value for key, value in changes.items() if value is not None}
    return parse_spec(document, source=f"evaluation of {what}")
