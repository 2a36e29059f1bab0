"""Bundles on this router's disk: those that were uploaded, and the copy in each job's run folder.

Owns their files and their bounds. Reads archives as data: code of a bundle is never loaded here.
"""

import time
from dataclasses import dataclass
from pathlib import Path

from troupe.bundles.archive import Bundle, read_bundle
from troupe.bundles.describe import bundle_issues
from troupe.bundles.settings import BundleSettings
from troupe.clients.rest.models.bundles import BundleDocument
from troupe.durable import replace_file
from troupe.errors import ConflictError, InvalidArgumentError, NotFoundError
from troupe.runtime.hosts import is_loopback
from troupe.runtime.telemetry.logging import get_logger
from troupe.spec import Issue, JobSpec, SpecInvalidError
from troupe_router.settings import RouterSettings

BUNDLE_FILE = "bundle.tar"
"""A job's bundle in its run folder."""
_MAX_OWNERS = 100
_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Uploaded:
    """What an upload left, and whether it was new."""

    document: BundleDocument
    is_new: bool


class BundleStore:
    """Archives by digest below the runs folder; safe for several routers that share the folder.

    Beyond ``bundle_store_bytes`` those that were named longest ago go; jobs keep their own copies.
    """

    def __init__(self, settings: RouterSettings) -> None:
        self._folder = settings.runs_dir.absolute() / ".troupe" / "bundles"
        self._max_bytes = settings.bundle_bytes
        self._max_total = settings.bundle_store_bytes
        private = is_loopback(settings.rest_address.rpartition(":")[0])
        self._is_on = private if settings.bundles is None else settings.bundles

    def check_on(self) -> None:
        """Raise InvalidArgumentError where this router takes no bundles."""
        if not self._is_on:
            raise InvalidArgumentError(
                "this router takes no code with a job; have the operator install it as a package, "
                "or set TROUPE_ROUTER_BUNDLES=true (docs/bundles.md)",
                pointer="/bundle",
            )

    def put(self, digest: str, archive: bytes, *, owner: str) -> Uploaded:
        """Keep an archive; once more adds the owner.

        Raises:
            InvalidArgumentError: it is not what ``digest`` names, not a bundle, or has
            requirements that env services here would not install.
        """
        self.check_on()
        bundle = read_bundle(archive, digest=digest, max_bytes=self._max_bytes)
        _check_requirements(bundle)
        earlier = self._find(digest)
        owners = list(dict.fromkeys([*(earlier.owners if earlier else ()), owner]))[-_MAX_OWNERS:]
        document = BundleDocument(
            digest=digest,
            size_bytes=len(archive),
            files=sorted(bundle.files),
            uploaded_at=earlier.uploaded_at if earlier else time.time(),
            owners=owners,
            has_requirements=bundle.has_requirements,
        )
        if earlier is None:
            self._make_room(len(archive))
        replace_file(self._path(digest, "tar"), archive, mode=0o600)
        replace_file(self._path(digest, "json"), document.model_dump_json(), mode=0o600)
        _log.info(
            "bundle.uploaded",
            digest=digest,
            owner=owner,
            size_bytes=len(archive),
            files=len(bundle.files),
        )
        return Uploaded(document, earlier is None)

    def page(self, owner: str | None) -> list[BundleDocument]:
        """Bundles by digest; ``owner`` None: everybody's."""
        digests = sorted(path.stem for path in self._folder.glob("*.json"))
        listed = [self._find(f"sha256:{name}") for name in digests]
        return [d for d in listed if d is not None and (owner is None or owner in d.owners)]

    def document(self, digest: str, owner: str | None) -> BundleDocument:
        """One bundle; raises NotFoundError, also where another owner has it."""
        found = self._find(digest)
        if found is None or (owner is not None and owner not in found.owners):
            raise _unknown(digest)
        return found

    def archive(self, digest: str) -> bytes:
        """The archive; raises NotFoundError. What is damaged on the disk is not given out."""
        try:
            path = self._path(digest, "tar")
            archive = path.read_bytes()
            path.touch()
        except OSError:
            raise _unknown(digest) from None
        return read_bundle(
            archive, digest=digest, max_bytes=max(self._max_bytes, len(archive))
        ).archive

    def delete(self, digest: str) -> None:
        """Remove an archive; jobs that were submitted with it have their own copy."""
        for ending in ("json", "tar"):
            self._path(digest, ending).unlink(missing_ok=True)

    def checked(self, spec: JobSpec, run_dir: Path | None = None) -> Bundle | None:
        """The bundle of ``spec``: an uploaded one, else that of ``run_dir``; None without one.

        Raises:
            SpecInvalidError: it is not here, not allowed, or has not what the spec names.
        """
        if spec.bundle is None:
            return None
        try:
            self.check_on()
            bundle = self._bundle(spec.bundle.digest, run_dir)
            _check_requirements(bundle)
        except (InvalidArgumentError, NotFoundError) as error:
            raise SpecInvalidError([Issue("/bundle/digest", error.message)]) from error
        if issues := bundle_issues(spec, bundle):
            raise SpecInvalidError(issues)
        return bundle

    def _bundle(self, digest: str, run_dir: Path | None) -> Bundle:
        try:
            archive = self.archive(digest)
        except NotFoundError:
            if run_dir is None or (archive := kept_archive(run_dir, digest)) is None:
                raise
        return read_bundle(archive, max_bytes=len(archive))

    def _find(self, digest: str) -> BundleDocument | None:
        try:
            return BundleDocument.model_validate_json(self._path(digest, "json").read_bytes())
        except (OSError, ValueError):
            return None

    def _path(self, digest: str, ending: str) -> Path:
        kind, _, name = digest.partition(":")
        if kind != "sha256" or len(name) != 64 or not set(name) <= set("0123456789abcdef"):
            raise InvalidArgumentError(
                f"{digest[:100]!r} is no bundle's digest; it is 'sha256:' and 64 hexadecimal digits"
            )
        return self._folder / f"{name}.{ending}"

    def _make_room(self, num_bytes: int) -> None:
        """Remove those that were named longest ago; raises ConflictError for one beyond all."""
        if num_bytes > self._max_total:
            raise ConflictError(
                f"a bundle of {num_bytes} bytes does not fit into {self._max_total}; have the "
                "operator raise TROUPE_ROUTER_BUNDLE_STORE_BYTES"
            )
        sizes: list[tuple[float, int, str]] = []
        for path in self._folder.glob("*.tar"):
            try:
                status = path.stat()
            except FileNotFoundError:
                continue  # another router removed it
            sizes.append((status.st_mtime, status.st_size, path.stem))
        total = sum(size for _, size, _ in sizes) + num_bytes
        for _, size, name in sorted(sizes):
            if total <= self._max_total:
                return
            self.delete(f"sha256:{name}")
            total -= size


def keep_bundle(run_dir: Path, bundle: Bundle) -> None:
    """Put the bundle into the run folder, so that the run stands alone."""
    replace_file(run_dir / BUNDLE_FILE, bundle.archive)


def kept_archive(run_dir: Path, digest: str) -> bytes | None:
    """The archive in a run folder, where it is the one that ``digest`` names."""
    path = run_dir / BUNDLE_FILE
    try:
        if path.is_symlink():
            return None
        archive = path.read_bytes()
        return read_bundle(archive, digest=digest, max_bytes=len(archive)).archive
    except (OSError, InvalidArgumentError):
        return None


def _check_requirements(bundle: Bundle) -> None:
    if bundle.has_requirements and not BundleSettings().index:
        raise InvalidArgumentError(
            "the bundle asks for packages (requirements.lock), and env services here install none; "
            "leave --requirements out, or have the operator set TROUPE_BUNDLE_INDEX",
            pointer="/bundle",
        )


def _unknown(digest: str) -> NotFoundError:
    return NotFoundError(
        f"no bundle {digest[:100]}; upload it first (`troupe submit --with` does), with a key of "
        "yours"
    )
