"""The team manifest ``team.json``: who is in a trained team, how it plays, and its weights.

Owns the format, and reading it from a folder with every digest checked. Never loads weights.
"""

import json
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError

from troupe import __version__
from troupe.errors import InvalidArgumentError, NotFoundError
from troupe.ids import is_hub_id
from troupe.publishing.files import FileEntry, inside, verify_entries
from troupe.runtime.run_folder import EXPORT_FILE
from troupe.spec import SpecInvalidError
from troupe.spec.base import MAX_NAMED, Name, SpecModel, is_empty
from troupe.spec.issues import issues_of
from troupe.spec.job import SamplingSpec, TaskSpec, WorkflowSpec
from troupe.spec.policy import TemplateVariables

MANIFEST = "team.json"
_MAX_MANIFEST_BYTES = 4 << 20
_Digest = Annotated[str, Field(pattern=r"^([0-9a-f]{64})?$")]
_Files = Annotated[dict[str, FileEntry], Field(max_length=4096)]


class TeamAgent(SpecModel):
    """One seat of a trained team."""

    policy: Name
    """Policy that it samples from."""
    instruction: str = ""
    """Its system message; "" where the task's own prompts instruct it."""
    sampling: SamplingSpec = SamplingSpec()
    """How it sampled in evaluations."""


class TeamBase(SpecModel):
    """A pretrained model that policies were trained from."""

    id: str = Field(min_length=1)
    """Hub id; the folder's name where the model has none."""
    revision: str = ""
    """Commit of the hub's model; "" where it is not known."""
    digest: _Digest = ""
    """SHA-256 over weights, configuration and tokenizer (``files.model_digest``); "": not known."""
    path: str = ""
    """Folder of the model inside the team; "": it is loaded by its id."""
    files: _Files = Field(default_factory=dict)
    """Files in ``path``."""


class TeamPolicy(SpecModel):
    """The weights of one policy."""

    base: str
    """Name of its base in ``bases``."""
    kind: Literal["lora", "full"]
    """A PEFT adapter of the base, or a whole model."""
    path: str
    """Folder inside the team."""
    files: _Files
    """Files in ``path``; safetensors alone hold weights."""
    lora_rank: int | None = None
    """Rank of an adapter."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Number format that it was trained and served in."""
    chat_template_kwargs: TemplateVariables = Field(default_factory=dict, exclude_if=is_empty)
    """Variables of the model's chat template that it learnt with."""
    takes_images: bool = Field(default=False, exclude_if=is_empty)
    """Whether it is a vision-language model."""


class TeamRows(SpecModel):
    """Rows that ``troupe.train`` learned from; they and the reward stay with the caller."""

    num_train: int
    """Training rows."""
    num_held_out: int
    """Held-out rows."""
    digest: str
    """SHA-256 of all rows."""


class TeamManifest(SpecModel):
    """A trained team: enough to serve and to evaluate it.

    Example: ``TeamManifest.read(Path("out")).agents["tool"].policy``.
    """

    format_version: Literal[1] = 1
    """Version of this format."""
    name: Name
    """Name of the job."""
    job_id: str
    """Its run."""
    checkpoint: str = ""
    """Step that the weights are of; "": those at the end of the job."""
    task: TaskSpec | None = None
    """Task family; None for rows and functions of a caller of ``troupe.train``."""
    rows: TeamRows | None = None
    """Those rows; None for a task family."""
    workflow: WorkflowSpec
    """Who acts when, and for how many turns."""
    agents: dict[Name, TeamAgent] = Field(min_length=1, max_length=MAX_NAMED)
    """The seats."""
    bases: dict[Name, TeamBase] = Field(min_length=1, max_length=MAX_NAMED)
    """Pretrained models, by a name of their own in this manifest."""
    policies: dict[Name, TeamPolicy] = Field(min_length=1, max_length=MAX_NAMED)
    """Weights."""
    troupe_version: str = __version__
    """Version of Troupe that wrote this."""
    commit: str = ""
    """Commit of Troupe that trained; "" where it is not known."""
    spec: dict[str, Any]
    """The job's spec; paths of the machine are cut to their last part, trackers are left out."""

    @classmethod
    def read(cls, folder: Path) -> "TeamManifest":
        """The manifest of a published folder, after all its files were checked.

        Raises NotFoundError or InvalidArgumentError for anything that is not as it was published.
        """
        manifest = _parsed(folder / MANIFEST)
        for weights in (*manifest.policies.values(), *manifest.bases.values()):
            if weights.path:
                verify_entries(inside(folder, weights.path), weights.files)
        return manifest

    def text(self) -> str:
        """As in ``team.json``: equal teams give equal texts."""
        return json.dumps(self.model_dump(mode="json"), indent=2, sort_keys=True) + "\n"


def _parsed(path: Path) -> TeamManifest:
    if not path.is_file() or path.is_symlink():
        is_export = (path.parent / EXPORT_FILE).is_file()
        instead = " with --checkpoint STEP, which takes RUN/exports/STEP" if is_export else ""
        raise NotFoundError(
            f"there is no {path}; give a folder that `troupe publish` wrote, or a run folder"
            f"{instead}"
        )
    if path.stat().st_size > _MAX_MANIFEST_BYTES:
        raise InvalidArgumentError(f"{path} is larger than {_MAX_MANIFEST_BYTES} bytes")
    try:
        manifest = TeamManifest.model_validate_json(path.read_bytes())
    except ValidationError as error:
        raise SpecInvalidError(issues_of(error, TeamManifest), source=str(path)) from error
    for name, agent in manifest.agents.items():
        if agent.policy not in manifest.policies:
            raise InvalidArgumentError(f"{path}: agent '{name}' has no policy '{agent.policy}'")
    needed = {p.base for p in manifest.policies.values() if p.kind == "lora"}
    for name, base in manifest.bases.items():
        if name in needed and not base.path and not is_hub_id(base.id):
            raise InvalidArgumentError(
                f"{path}: base '{name}' is in no folder of the team, and '{base.id}' is no hub id"
            )
    for name, policy in manifest.policies.items():
        if policy.base not in manifest.bases:
            raise InvalidArgumentError(f"{path}: policy '{name}' has no base '{policy.base}'")
    return manifest
