"""A team as an artifact of an OCI registry: one layer a file, as ORAS lays files out.

``oras pull`` writes the same folder. Blobs go first and the manifest last, so a tag never names
half of a team.
"""

from pathlib import Path
from typing import Any

from troupe.durable import make_once
from troupe.errors import InvalidArgumentError
from troupe.publishing.content import ContentFile, TeamContent
from troupe.publishing.files import file_errors, inside
from troupe.publishing.manifest import MANIFEST, TeamManifest
from troupe.publishing.places import OciPlace
from troupe.publishing.registry import MANIFEST_TYPE, RegistryClient
from troupe.publishing.settings import PublishSettings

ARTIFACT_TYPE = "application/vnd.troupe.team.v1"
_TITLE = "org.opencontainers.image.title"
_MAX_FILES = 10_000
_EMPTY = ContentFile(b"{}")


def send_to_registry(content: TeamContent, place: OciPlace, settings: PublishSettings) -> str:
    """Send the team; returns its address by digest. Blobs that are there are not sent again.

    Raises ForbiddenError, NotFoundError, UnavailableError or DeadlineError as the registry answers,
    InvalidArgumentError for files that can't be read.
    """
    if place.reference.startswith("sha256:"):
        raise InvalidArgumentError(f"{place}: give a tag to publish to, such as :v1")
    with file_errors(), RegistryClient(place, settings) as registry:
        registry.put_blob(_EMPTY)
        layers: list[dict[str, Any]] = []
        for name, file in content.files.items():
            registry.put_blob(file)
            layer = _descriptor(file, "application/octet-stream")
            layers.append({**layer, "annotations": {_TITLE: name}})
        document = {
            "schemaVersion": 2,
            "mediaType": MANIFEST_TYPE,
            "artifactType": ARTIFACT_TYPE,
            "config": _descriptor(_EMPTY, "application/vnd.oci.empty.v1+json"),
            "layers": layers,
            "annotations": {_TITLE: content.manifest.name},
        }
        digest = registry.put_manifest(document)
    return f"oci:{place.host}/{place.repository}@{digest}"


def fetch_from_registry(place: OciPlace, folder: Path, settings: PublishSettings) -> Path:
    """The team's folder below ``folder``, one for each digest.

    Raises as ``send_to_registry``, and as ``TeamManifest.read`` for a team that is not as
    published.
    """
    with file_errors(), RegistryClient(place, settings) as registry:
        digest, document = registry.manifest()
        if document.get("artifactType") != ARTIFACT_TYPE:
            raise InvalidArgumentError(f"{place} is no team ({document.get('artifactType')})")
        name = f"{place.host}/{place.repository}".replace("/", "--").replace(":", "-")
        target = folder / name / digest.removeprefix("sha256:")
        make_once(
            target,
            lambda: (target / MANIFEST).is_file(),
            lambda draft: _download(registry, place, document, draft),
        )
    return target


def _download(
    registry: RegistryClient, place: OciPlace, document: dict[str, Any], draft: Path
) -> None:
    try:
        layers = [
            (str(x["annotations"][_TITLE]), str(x["digest"]), int(x["size"]))
            for x in document["layers"]
        ]
    except (KeyError, TypeError, ValueError) as error:
        raise InvalidArgumentError(f"{place}: its manifest is not that of a team") from error
    if len(layers) > _MAX_FILES:
        raise InvalidArgumentError(f"{place}: {len(layers)} files, more than {_MAX_FILES}")
    draft.mkdir()
    for name, digest, size in layers:
        target = inside(draft, name)
        target.parent.mkdir(parents=True, exist_ok=True)
        registry.fetch_blob(digest, size, target)
    TeamManifest.read(draft)


def _descriptor(file: ContentFile, media_type: str) -> dict[str, Any]:
    entry = file.entry
    digest = f"sha256:{entry.sha256}"
    return {"mediaType": media_type, "digest": digest, "size": entry.size_bytes}
