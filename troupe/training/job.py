"""A job spec from the arguments of ``troupe.train``."""

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, field, fields
from typing import Annotated, Any

from pydantic import Field, TypeAdapter, ValidationError

from troupe import plugins
from troupe.cli.specs import is_missing_folder, set_field, with_local_paths
from troupe.errors import InvalidArgumentError
from troupe.spec import JobSpec, parse_spec
from troupe.spec.issues import suggest
from troupe.training.dataset import TaskRows

Agents = Mapping[str, str] | list[str] | tuple[str, ...]
"""Agents by name with their instructions, in the order in which they act; or names alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingOptions:
    """What ``troupe.train`` takes beside agents, data and functions; see there."""

    model: str | Mapping[str, str]
    algorithm: str | Mapping[str, Any] = ""
    steps: int = 50
    name: str = "notebook"
    seed: int = 0
    group_size: int = 4
    tasks_per_step: int = 8
    max_turns: Annotated[int, Field(ge=1)] = 1
    max_new_tokens: int = 128
    temperature: float = 1.0
    learning_rate: float = 1e-4
    lora_rank: int | None = 16
    shared_policy: bool = False
    eval_every: int = 0
    judge_timeout_s: Annotated[float, Field(gt=0.0, allow_inf_nan=False)] = 300.0
    overrides: Mapping[str, Any] = field(default_factory=dict[str, Any])


def training_options(options: dict[str, Any]) -> TrainingOptions:
    """Options by name; raises InvalidArgumentError for one that there is not, or no model.

    Values are converted as those of a spec are: a text that is a number counts as one.
    """
    names = [field.name for field in fields(TrainingOptions)]
    if unknown := sorted(set(options) - set(names)):
        raise InvalidArgumentError(
            f"troupe.train has no argument '{unknown[0]}'; {suggest(unknown[0], names)}. A field "
            "of the job spec goes into overrides={'limits.env_timeout_s': 300}"
        )
    if "model" not in options:
        raise InvalidArgumentError(
            "give model: a folder that save_pretrained wrote, a hub id, or one for each agent"
        )
    try:
        return TypeAdapter(TrainingOptions).validate_python(options)
    except ValidationError as error:
        faults = "; ".join(
            f"{'.'.join(map(str, fault['loc']))}: {fault['msg']} (got {fault['input']!r})"
            for fault in error.errors()
        )
        raise InvalidArgumentError(f"arguments of troupe.train are wrong: {faults}") from error


def instructions(agents: Agents) -> dict[str, str]:
    """Agents with their instructions; raises InvalidArgumentError when there is none."""
    if isinstance(agents, str) or not agents:
        raise InvalidArgumentError(
            "agents must name at least one agent: {'writer': 'Sum up in one line.'} or ['writer']"
        )
    named = dict(agents) if isinstance(agents, Mapping) else dict.fromkeys(agents, "")
    if len(named) < len(agents):
        twice = next(name for name in agents if list(agents).count(name) > 1)
        raise InvalidArgumentError(f"two agents are called '{twice}'; give each its own name")
    for name, instruction in named.items():
        if not isinstance(instruction, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidArgumentError(
                f"the instruction of agent '{name}' is a {type(instruction).__name__}; give a text"
            )
    return named


def job_spec(
    agents: Mapping[str, str],
    rows: TaskRows,
    task: Mapping[str, Any],
    options: TrainingOptions,
    *,
    is_here: bool = True,
) -> JobSpec:
    """The job whose task is ``task``; raises SpecInvalidError or InvalidArgumentError.

    Paths of models are this machine's if it trains here (``is_here``). Without an algorithm a team
    learns by MAGRPO, whose joint actions one reward can judge, and a single agent by GRPO. Where
    the algorithm takes joint actions, a team's agents act at once.
    """
    if options.eval_every and not rows.held_out:
        raise InvalidArgumentError(
            "eval_every asks for evaluations, and no row is held out: give held_out, or at least "
            "10 different rows, of which a tenth is"
        )
    algorithm = _algorithm(options, num_agents=len(agents))
    policies = _policies(agents, options)
    document: dict[str, Any] = {
        "name": options.name,
        "seed": options.seed,
        "steps": options.steps,
        "tasks_per_step": options.tasks_per_step,
        "task": deepcopy(dict(task)),
        "workflow": {
            "kind": "turn_based" if algorithm.get("joint") is None else "simultaneous",
            "order": list(agents),
            "max_turns": options.max_turns,
        },
        "agents": {
            name: {"policy": "shared" if options.shared_policy else name} for name in agents
        },
        "policies": policies,
        "algorithm": algorithm,
        "sampling": {"temperature": options.temperature, "max_new_tokens": options.max_new_tokens},
        # A function that raises drops its ticket, which must not go unseen.
        "limits": {"env_timeout_s": options.judge_timeout_s + 5.0, "max_dropped_fraction": 0.0},
        "eval": {
            "num_tasks": len(rows.held_out),
            "split": "validation",
            "every": options.eval_every,
        },
    }
    for key, value in options.overrides.items():
        set_field(document, key, deepcopy(value), label=f"overrides[{key!r}]")
    spec = parse_spec(document, source="the arguments of troupe.train")
    _check_overridden(spec, task, options)
    if not is_here:
        return spec
    for policy in spec.policies.values():
        if is_missing_folder(policy.model):
            raise InvalidArgumentError(
                f"there is no model in the folder '{policy.model}' (no config.json); give a folder "
                "that save_pretrained wrote, or a hub id"
            )
    return with_local_paths(spec)


def _check_overridden(spec: JobSpec, task: Mapping[str, Any], options: TrainingOptions) -> None:
    """Refuse overrides of what the environment has from the arguments: they have no effect."""
    if spec.task.model_dump() != task:
        raise InvalidArgumentError(
            "overrides change the task, which is made of other arguments of troupe.train; give "
            "those: agents, dataset, held_out, max_turns, judge_timeout_s"
        )
    if spec.workflow.max_turns != options.max_turns:
        raise InvalidArgumentError(
            f"overrides make workflow.max_turns {spec.workflow.max_turns}, and an episode ends "
            f"after max_turns={options.max_turns}; give the argument max_turns instead"
        )


def _algorithm(options: TrainingOptions, *, num_agents: int) -> dict[str, Any]:
    given = options.algorithm
    algorithm: dict[str, Any] = {"kind": given} if isinstance(given, str) else deepcopy(dict(given))
    algorithm["kind"] = algorithm.get("kind") or ("magrpo" if num_agents > 1 else "grpo")
    algorithm.setdefault("group_size", options.group_size)
    kind = plugins.load(plugins.ALGORITHMS, algorithm["kind"], pointer="/algorithm/kind")
    takes_it = num_agents > 1 and "joint" in getattr(kind, "options", ())
    if takes_it or "joint" in getattr(kind, "required", ()):
        algorithm.setdefault("joint", {})
    return algorithm


def _policies(agents: Mapping[str, str], options: TrainingOptions) -> dict[str, Any]:
    models = options.model
    if isinstance(models, str):
        models = dict.fromkeys(agents, models)
    if missing := sorted(set(agents) - set(models)):
        raise InvalidArgumentError(f"model names none for {', '.join(missing)}; add them")
    if options.shared_policy and len(set(models.values())) > 1:
        raise InvalidArgumentError("shared_policy=True needs one model for all agents; give one")
    rank = options.lora_rank
    train = {"kind": "full"} if rank is None else {"kind": "lora", "rank": rank, "alpha": 2 * rank}
    names = {"shared": next(iter(agents))} if options.shared_policy else {a: a for a in agents}
    return {
        policy: {
            "model": models[agent],
            "train": dict(train),
            "optimizer": {"learning_rate": options.learning_rate},
        }
        for policy, agent in names.items()
    }
