"""What is sent of a team: every file by its path, with its bytes or where they are.

Owns the layout of a published folder: ``team.json``, cards, ``policies/NAME``, ``bases/NAME``.
Equal teams give equal files. Never sends anything.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from troupe.errors import InvalidArgumentError, WeightsRejectedError
from troupe.evaluation.documents import read_object
from troupe.ids import is_hub_id
from troupe.publishing.card import CardFacts, policy_card, team_card
from troupe.publishing.files import SUFFIXES, FileEntry, file_sha256
from troupe.publishing.manifest import MANIFEST, TeamBase, TeamManifest, TeamPolicy
from troupe.publishing.scrub import without_paths
from troupe.publishing.team_folder import TeamFolder
from troupe.runtime.weights import read_layout

CURVE = "curve.png"
_REWRITTEN = frozenset(
    {"adapter_config.json", "config.json", "generation_config.json", "tokenizer_config.json"}
)
"""Small configurations, in which libraries note the paths of the machine that wrote them."""
_NOTES = ("LICENSE", "NOTICE")


@dataclass(frozen=True)
class ContentFile:
    """One file to send: bytes, or a file on this machine."""

    source: bytes | Path

    @cached_property
    def entry(self) -> FileEntry:
        """Its digest and size."""
        if isinstance(self.source, Path):
            sha256, size = file_sha256(self.source), self.source.stat().st_size
        else:
            sha256, size = hashlib.sha256(self.source).hexdigest(), len(self.source)
        return FileEntry(sha256=sha256, size_bytes=size)

    def chunks(self) -> Iterator[bytes]:
        """Its bytes, a megabyte at a time."""
        if isinstance(self.source, bytes):
            yield self.source
            return
        with self.source.open("rb") as file:
            while chunk := file.read(1 << 20):
                yield chunk


@dataclass(frozen=True, slots=True)
class TeamContent:
    """A team ready to be sent: its manifest, and every file by its path in the team."""

    manifest: TeamManifest
    files: Mapping[str, ContentFile]

    @property
    def size_bytes(self) -> int:
        """Bytes of all files."""
        return sum(file.entry.size_bytes for file in self.files.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class ContentOptions:
    """What the caller says of a team that its run does not."""

    licence: str = ""
    """Identifier such as apache-2.0; "": that of the base where it is known."""
    datasets: tuple[str, ...] = ()
    """Hub ids of the data sets."""
    base_ids: Mapping[str, str] = field(default_factory=dict[str, str])
    """Base by name to the hub id of the same model, which is then not sent."""
    evaluation: Path | None = None
    """Folder of an evaluation (`troupe eval --out`) for the card."""


def content_of(team: TeamFolder, options: ContentOptions, *, at: str) -> TeamContent:
    """Every file of ``team``; ``at`` is the hub's repository that cards load it from, or "".

    Raises InvalidArgumentError for weights that may not be sent.
    """
    files: dict[str, ContentFile] = {}
    bases = {name: _base(team, name, options, files) for name in team.manifest.bases}
    policies = {
        name: _policy(team, name, bases[policy.base], files)
        for name, policy in team.manifest.policies.items()
    }
    manifest = team.manifest.model_copy(update={"bases": bases, "policies": policies})
    curve = _curve(team.folder)
    if curve is not None:
        files[CURVE] = ContentFile(curve)
    facts = CardFacts.of_run(
        team.folder,
        at=at,
        licence=options.licence or _licence(team),
        datasets=options.datasets,
        evaluation=options.evaluation,
        has_curve=curve is not None,
        checkpoint=team.manifest.checkpoint,
    )
    for name in policies:
        files[f"policies/{name}/README.md"] = _text(policy_card(manifest, name, facts))
    files["README.md"] = _text(team_card(manifest, facts))
    files[MANIFEST] = _text(manifest.text())
    return TeamContent(manifest, dict(sorted(files.items())))


def _base(
    team: TeamFolder, name: str, options: ContentOptions, files: dict[str, ContentFile]
) -> TeamBase:
    base = team.manifest.bases[name]
    if hub_id := options.base_ids.get(name):
        if not is_hub_id(hub_id):
            raise InvalidArgumentError(f"--base {name}={hub_id}: '{hub_id}' is not a hub id")
        return base.model_copy(update={"id": hub_id, "revision": ""})
    needed = any(p.base == name and p.kind == "lora" for p in team.manifest.policies.values())
    folder = Path(team.locations[name]).expanduser()
    if not needed:
        return base
    if not (folder / "config.json").is_file():
        if base.id == team.locations[name]:
            return base
        raise InvalidArgumentError(
            f"base '{name}' ({folder}) is not there any more, so nobody could load the adapters; "
            f"say which model of the hub it is: --base {name}=ORG/MODEL"
        )
    wanted = [path for path in sorted(folder.iterdir()) if path.suffix in SUFFIXES]
    entries: dict[str, FileEntry] = {}
    for path in wanted:
        file = _weights_file(path, "")
        files[f"bases/{name}/{path.name}"] = file
        entries[path.name] = file.entry
    for note in _NOTES:
        if (folder / note).is_file():
            files[f"bases/{name}/{note}"] = ContentFile(folder / note)
    return base.model_copy(update={"path": f"bases/{name}", "files": entries})


def _policy(
    team: TeamFolder, name: str, base: TeamBase, files: dict[str, ContentFile]
) -> TeamPolicy:
    policy = team.manifest.policies[name]
    folder, path = team.weights(name), f"policies/{name}"
    entries: dict[str, FileEntry] = {}
    for file_name in policy.files:
        if file_name.endswith(".safetensors"):
            _check_whole(folder / file_name)
        file = _weights_file(folder / file_name, base.path or base.id)
        files[f"{path}/{file_name}"] = file
        entries[file_name] = file.entry
    return policy.model_copy(update={"path": path, "files": entries})


def _check_whole(path: Path) -> None:
    """Raise InvalidArgumentError for weights that were cut: an export's disk may have been full."""
    try:
        read_layout(path)
    except WeightsRejectedError as error:
        raise InvalidArgumentError(error.message) from error


def _weights_file(path: Path, base: str) -> ContentFile:
    """The file as it is; a configuration without this machine's paths."""
    if path.name not in _REWRITTEN:
        return ContentFile(path.resolve())
    document = read_object(path)
    cleaned = without_paths(document)
    if path.name == "adapter_config.json":
        cleaned["base_model_name_or_path"] = base
    if cleaned == document:
        return ContentFile(path.resolve())
    return _text(json.dumps(cleaned, indent=2, ensure_ascii=False) + "\n")


def _curve(folder: Path) -> bytes | None:
    """The run's ``curve.png``; None where the router could not draw it."""
    path = folder / CURVE
    return path.read_bytes() if path.is_file() else None


def _licence(team: TeamFolder) -> str:
    """The licence that all local bases note (`troupe model fetch`), as the hub writes it."""
    licences: set[str] = set()
    for location in team.locations.values():
        note = Path(location) / "provenance.json"
        if not note.is_file():
            return ""
        licences.add(str(read_object(note).get("licence") or "").lower())
    return licences.pop() if len(licences) == 1 else ""


def _text(text: str) -> ContentFile:
    return ContentFile(text.encode())
