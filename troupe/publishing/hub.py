"""Sends a team to a hub, and fetches one, with the hub's own client.

A team is one repository and one commit, so nobody ever reads half of it. Never shows a token.
"""

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from troupe.durable import make_once
from troupe.errors import (
    ConflictError,
    ForbiddenError,
    InvalidArgumentError,
    NotFoundError,
    UnavailableError,
)
from troupe.publishing.content import CURVE, TeamContent
from troupe.publishing.files import file_errors
from troupe.publishing.manifest import MANIFEST, TeamManifest
from troupe.publishing.places import HubPlace
from troupe.publishing.settings import PublishSettings

_WEIGHTS = ("policies/", "bases/")
_WANTED = [MANIFEST, CURVE, "README.md", "policies/*", "bases/*"]
_BASE_FILES = ["*.safetensors", "*.json", "*.jinja", "*.txt", "*.model"]
_OTHER_COPIES = ["consolidated*"]
"""The same weights once more, for Mistral's own loader."""
_UNAUTHORIZED, _FORBIDDEN = 401, 403


def send_to_hub(
    content: TeamContent, place: HubPlace, settings: PublishSettings, *, public: bool
) -> str:
    """Make the repository where there is none, and commit the team; returns the commit's address.

    Files that are there already are not sent again, and an equal team makes no commit.

    Raises:
        ConflictError: the repository holds something else, or is not as ``public`` says.
        ForbiddenError, NotFoundError, UnavailableError: as the hub answers.
    """
    if place.revision:
        raise InvalidArgumentError(f"{place}: a team is sent to the main branch; leave @... out")
    api = _client(settings)
    from huggingface_hub import CommitOperationAdd, CommitOperationDelete

    with _errors(place):
        api.create_repo(place.repo, private=not public, exist_ok=True)
        is_private = bool(api.model_info(place.repo).private)
        if not is_private and not public:
            raise ConflictError(
                f"{place} can be read by everybody; add --public to send the team there anyway"
            )
        if is_private and public:
            raise ConflictError(
                f"{place} is private, and --public opens new repositories only; leave it out, or "
                "make this one public in its settings on the hub first"
            )
        present = set(api.list_repo_files(place.repo))
        if present - {".gitattributes"} and MANIFEST not in present:
            raise ConflictError(f"{place} holds something that is no team; give another name")
        stale = [p for p in present if p.startswith(_WEIGHTS) and p not in content.files]
        operations: list[Any] = [CommitOperationDelete(path) for path in sorted(stale)]
        operations += [
            CommitOperationAdd(path, file.source) for path, file in content.files.items()
        ]
        commit = api.create_commit(
            place.repo, operations, commit_message=f"Team {content.manifest.name}"
        )
    return str(commit.commit_url)


def fetch_from_hub(place: HubPlace, folder: Path, settings: PublishSettings) -> Path:
    """The team's folder below ``folder``, one for each commit, and its bases in the hub's cache.

    Raises as ``send_to_hub``, and as ``TeamManifest.read`` for a team that is not as published.
    """
    api = _client(settings)
    with _errors(place):
        commit = api.model_info(place.repo, revision=place.revision or None).sha
        target = folder / place.repo.replace("/", "--") / str(commit)
        make_once(
            target,
            lambda: (target / MANIFEST).is_file(),
            lambda draft: _download(api, place, str(commit), draft),
        )
    return target


def fetch_bases(manifest: TeamManifest, settings: PublishSettings) -> None:
    """Bring the hub's models that the team needs into the hub's cache, at their revision."""
    needed = {p.base for p in manifest.policies.values() if p.kind == "lora"}
    for name in sorted(needed):
        base = manifest.bases[name]
        if base.path:
            continue
        api, place = _client(settings), HubPlace(base.id, base.revision)
        with _errors(place):
            api.snapshot_download(
                base.id,
                revision=base.revision or None,
                allow_patterns=_BASE_FILES,
                ignore_patterns=_OTHER_COPIES,
            )


def _download(api: Any, place: HubPlace, commit: str, draft: Path) -> None:
    api.snapshot_download(place.repo, revision=commit, local_dir=draft, allow_patterns=_WANTED)
    TeamManifest.read(draft)


def _client(settings: PublishSettings) -> Any:
    try:
        from huggingface_hub import HfApi
    except ImportError as error:
        raise InvalidArgumentError(
            "the hub needs its client; install it with pip install 'troupe[publish]'"
        ) from error
    token = settings.hub_token.get_secret_value() or None
    return HfApi(endpoint=settings.hub_url or None, token=token)


@contextmanager
def _errors(place: HubPlace) -> Generator[None]:
    """The hub's errors as Troupe's; none of them quotes a token."""
    from huggingface_hub.errors import (
        HfHubHTTPError,
        LocalEntryNotFoundError,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    http_error: type[Exception] = HfHubHTTPError.__bases__[0]  # of whichever library it uses
    unreachable = UnavailableError(
        f"{place}: the hub does not answer. Check the network, HF_ENDPOINT or "
        "TROUPE_PUBLISH_HUB_URL, and try again: what was sent is not sent twice"
    )
    try:
        with file_errors():
            yield
    except RepositoryNotFoundError as error:
        raise NotFoundError(
            f"{place}: there is no such repository, or this token may not see it (HF_TOKEN or "
            "TROUPE_PUBLISH_HUB_TOKEN)"
        ) from error
    except RevisionNotFoundError as error:
        raise NotFoundError(f"{place}: the repository has no such revision") from error
    except LocalEntryNotFoundError as error:
        raise unreachable from error
    except HfHubHTTPError as error:
        status = error.response.status_code
        if status in (_UNAUTHORIZED, _FORBIDDEN):
            raise ForbiddenError(
                f"{place}: the hub refuses the token ({status}); give one that may write there as "
                "HF_TOKEN or TROUPE_PUBLISH_HUB_TOKEN"
            ) from error
        raise UnavailableError(
            f"{place}: the hub answered {status} ({error.server_message}); try again: what was "
            "sent is not sent twice"
        ) from error
    except (http_error, OSError) as error:
        raise unreachable from error
    except RuntimeError as error:  # an upload that failed, after the client's own retries
        if not isinstance(error.__cause__, http_error):
            raise
        raise unreachable from error
