"""A team at hand: a published folder, or the run folder of a job that succeeded.

Owns where the weights of a team are. Never loads them and never opens a connection.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from troupe.errors import InvalidArgumentError, NotFoundError
from troupe.evaluation.documents import read_object, summary_of
from troupe.evaluation.refs import WeightsRef
from troupe.ids import is_hub_id
from troupe.publishing.files import entries_of, inside, model_digest
from troupe.publishing.hub_cache import cached_model
from troupe.publishing.manifest import (
    MANIFEST,
    TeamAgent,
    TeamBase,
    TeamManifest,
    TeamPolicy,
    TeamRows,
)
from troupe.publishing.scrub import scrubbed
from troupe.spec import JobSpec, load_spec
from troupe.spec.job import TaskSpec, WorkflowSpec
from troupe.spec.policy import LoraSpec
from troupe.spec.vision import takes_images
from troupe.training.packing import BUNDLED_TASK
from troupe.training.task import TASK_NAME

PUBLISHED_CODE = (
    "no published team may load here, for whoever wrote it would choose what runs; look at it, and "
    "use the run folder instead, or install it as an entry point and name that in team.json"
)
"""What ``plugins.only_modules`` says of code that a published manifest names."""


@dataclass(frozen=True, slots=True)
class TeamFolder:
    """A team at hand: the manifest, and where its weights are.

    Example: ``open_team("out").adapter("tool")``.
    """

    folder: Path
    manifest: TeamManifest
    locations: Mapping[str, str] = field(default_factory=dict[str, str])
    """Base by name to the folder or hub id that a loader takes."""

    @property
    def is_published(self) -> bool:
        """Whether it came from elsewhere: code that its manifest names is then nobody's consent.

        Load what it names inside ``plugins.only_modules((), PUBLISHED_CODE)``.
        """
        return (self.folder / MANIFEST).is_file()

    @property
    def task(self) -> TaskSpec | None:
        """The task to play; a run folder's with its paths, of which the manifest has the last part.

        None for rows of ``troupe.train``.
        """
        if self.is_published or self.manifest.task is None:
            return self.manifest.task
        return load_spec(self.folder / "spec.json").task

    @property
    def workflow(self) -> WorkflowSpec:
        """The workflow to play, as ``task``."""
        if self.is_published:
            return self.manifest.workflow
        return load_spec(self.folder / "spec.json").workflow

    def weights(self, policy: str) -> Path:
        """Folder of the policy's adapter, or of its whole model."""
        return inside(self.folder, self.manifest.policies[policy].path).resolve()

    def model(self, policy: str) -> str:
        """The model to load for ``policy``: its base, or itself where all weights were trained."""
        entry = self.manifest.policies[policy]
        return str(self.weights(policy)) if entry.kind == "full" else self.locations[entry.base]

    def adapter(self, policy: str) -> Path | None:
        """Folder of the policy's adapter; None where all weights were trained."""
        is_lora = self.manifest.policies[policy].kind == "lora"
        return self.weights(policy) if is_lora else None

    def ref(self, policy: str) -> WeightsRef:
        """The policy as an evaluation or an endpoint loads it."""
        variables = self.manifest.policies[policy].chat_template_kwargs
        return WeightsRef(
            self.model(policy), str(self.adapter(policy) or ""), tuple(variables.items())
        )


def open_team(folder: str | Path, checkpoint: str = "") -> TeamFolder:
    """A published folder, or the run folder of a job that succeeded.

    Raises NotFoundError for any other folder, InvalidArgumentError where a file is not as it was
    published, or the base that is here is another one than the team's.
    """
    folder = Path(folder).expanduser()
    is_run = (folder / "spec.json").is_file() and not (folder / MANIFEST).is_file()
    if is_run:
        return team_of_run(folder, checkpoint)
    manifest = TeamManifest.read(folder)
    locations = {name: _location(folder, base) for name, base in manifest.bases.items()}
    return TeamFolder(folder, manifest, locations)


def _location(folder: Path, base: TeamBase) -> str:
    if base.path:
        return str(inside(folder, base.path).resolve())
    cached = cached_model(base.id, base.revision)
    if cached and base.digest and model_digest(cached.folder) != base.digest:
        raise InvalidArgumentError(
            f"the model '{base.id}' in this machine's cache is not whole, or another one than the "
            f"team was trained from (digest {base.digest[:16]}...); fetch revision "
            f"{base.revision or 'main'} of it"
        )
    return str(cached.folder) if cached else base.id


def team_of_run(folder: Path, checkpoint: str = "") -> TeamFolder:
    """The team of a run folder: of its end, or of ``exports/CHECKPOINT`` (`troupe export`).

    Raises NotFoundError where there are no weights, InvalidArgumentError for what may not be
    published.
    """
    if not (folder / "spec.json").is_file():
        raise NotFoundError(f"{folder} is neither a run folder (spec.json) nor a team ({MANIFEST})")
    spec = load_spec(folder / "spec.json")
    names = _base_names(spec)
    is_rows = spec.task.name == TASK_NAME
    has_instructions = is_rows or spec.task.name == BUNDLED_TASK
    instructions: dict[str, str] = spec.task.params["agents"] if has_instructions else {}
    document = scrubbed(spec)
    manifest = TeamManifest(
        name=spec.name,
        job_id=folder.resolve().name,
        checkpoint=_step(folder, checkpoint, next(iter(spec.policies))),
        task=None if is_rows else TaskSpec.model_validate(document["task"]),
        rows=_rows(spec) if is_rows else None,
        workflow=WorkflowSpec.model_validate(document["workflow"]),
        agents={
            name: TeamAgent(
                policy=agent.policy,
                instruction=instructions.get(name, ""),
                sampling=spec.sampling_for(name, evaluate=True),
            )
            for name, agent in spec.agents.items()
        },
        bases={name: _base(model) for model, name in names.items()},
        policies={
            name: _policy(folder, spec, name, checkpoint, names[spec.policies[name].model])
            for name in spec.policies
        },
        commit=summary_of(folder).get("commit") or "",
        spec=document,
    )
    return TeamFolder(folder, manifest, {name: model for model, name in names.items()})


def _step(folder: Path, checkpoint: str, policy: str) -> str:
    """The step that an export is of: "latest" says less. "" for the weights at the job's end."""
    note = folder / "exports" / checkpoint / policy / "checkpoint.json"
    if not checkpoint or not note.is_file():
        return checkpoint
    return str(read_object(note)["step"])


def _rows(spec: JobSpec) -> TeamRows:
    params = spec.task.params
    return TeamRows.model_validate({name: params[name] for name in TeamRows.model_fields})


def _base_names(spec: JobSpec) -> dict[str, str]:
    """Model of the spec -> its name in the manifest."""
    names: dict[str, str] = {}
    for policy in spec.policies.values():
        last = Path(policy.model).name.lower()
        word = "".join(c if c.isascii() and c.isalnum() else "-" for c in last).strip("-")
        word = ("base-" + word if not word[:1].isalpha() else word)[:30].rstrip("-")
        taken = {name for model, name in names.items() if model != policy.model}
        names[policy.model] = word if word not in taken else f"{word}-{len(names) + 1}"
    return names


def _base(model: str) -> TeamBase:
    folder = Path(model).expanduser()
    if (folder / "config.json").is_file():
        return TeamBase(id=folder.name, digest=model_digest(folder))
    if cached := cached_model(model):
        digest = model_digest(cached.folder)
        return TeamBase(id=model, revision=cached.revision, digest=digest)
    return TeamBase(id=_last_part(model))


def _last_part(model: str) -> str:
    """A hub id as it is; of a folder that is not there any more, its last part."""
    return model if is_hub_id(model) else Path(model).name


def _policy(folder: Path, spec: JobSpec, name: str, checkpoint: str, base: str) -> TeamPolicy:
    train = spec.policies[name].train
    kind = "adapter" if isinstance(train, LoraSpec) else "merged"
    parent = f"exports/{checkpoint}" if checkpoint else "policies"
    path = f"{parent}/{name}/{kind}"
    if not (folder / path).is_dir():
        by_hand = f"troupe export {folder}" + (f" --checkpoint {checkpoint}" if checkpoint else "")
        raise NotFoundError(
            f"{folder} holds no weights of policy '{name}' ({path}): a job writes them when it "
            f"succeeds. Those of a checkpoint: `{by_hand}`"
        )
    return TeamPolicy(
        base=base,
        kind="lora" if isinstance(train, LoraSpec) else "full",
        path=path,
        files=entries_of(inside(folder, path)),
        lora_rank=train.rank if isinstance(train, LoraSpec) else None,
        dtype=spec.policies[name].dtype,
        chat_template_kwargs=spec.policies[name].chat_template_kwargs,
        takes_images=_takes_images(folder / parent / name / "merged", spec.policies[name].model),
    )


def _takes_images(merged: Path, model: str) -> bool:
    """Whether the policy does, from the first of its models that is on this machine."""
    cached = cached_model(model)
    places = (str(merged), model, str(cached.folder) if cached else "")
    return next((sees for place in places if (sees := takes_images(place)) is not None), False)
