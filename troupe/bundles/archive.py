"""The archive of a bundle: an uncompressed tar that has one form for given files.

Sorted names, regular files alone, no owner, no time: equal files have one digest on every machine.
Uncompressed, so that no archive is larger than what was sent. What is read is built again and must
be equal byte by byte, which refuses links, devices, sparse files and whatever else tar can say.
"""

import hashlib
import io
import os
import re
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from troupe.bundles.requirements import check_requirements
from troupe.errors import InvalidArgumentError

MAX_BUNDLE_BYTES = 48 << 20
"""Of an archive that a client builds: the most that an operator can allow. The router refuses what
is above its own limit, and names it."""
MAX_BUNDLE_FILES = 1000
MAX_DEPTH = 16
MAX_NAME = 100
"""Characters of a name, as far as the tar format takes them in one field."""
REQUIREMENTS = "requirements.lock"
"""Reserved name at the top of a bundle: a list of packages, each with hashes."""
_PART = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+ -]*")
_SKIPPED = frozenset({"__pycache__", "node_modules"})


@dataclass(frozen=True)
class Bundle:
    """Files by name, and the archive that they make.

    Example: ``build_bundle([Path("my_task.py")]).digest``.
    """

    files: Mapping[str, bytes]
    archive: bytes

    @cached_property
    def digest(self) -> str:
        """``sha256:`` and 64 hexadecimal digits, of the archive."""
        return digest_of_archive(self.archive)

    @property
    def has_requirements(self) -> bool:
        """Whether it asks for packages."""
        return REQUIREMENTS in self.files

    def holds_module(self, name: str) -> bool:
        """Whether ``file.py`` or the dotted module ``name`` lies in it."""
        if name.endswith(".py"):
            return name in self.files
        path = name.replace(".", "/")
        return f"{path}.py" in self.files or any(f.startswith(f"{path}/") for f in self.files)


def digest_of_archive(archive: bytes) -> str:
    """The name of an archive."""
    return f"sha256:{hashlib.sha256(archive).hexdigest()}"


def build_bundle(
    paths: Sequence[Path | str],
    *,
    root: Path | None = None,
    requirements: Path | None = None,
    max_bytes: int = MAX_BUNDLE_BYTES,
) -> Bundle:
    """The bundle of files and folders; hidden files and caches in a folder are left out.

    A path below ``root`` (the working directory) keeps its place there, so that a name such as
    ``src/my_task.py:MyTask`` means the same; any other goes to the top by its own name.

    Raises:
        InvalidArgumentError: a path is missing or holds no file, a folder holds a link, or a limit
            is passed.
    """
    base = (root or Path.cwd()).resolve()
    files: dict[str, bytes] = {}
    for path in paths:
        named = list(_named(Path(path).expanduser(), base))
        if not named:
            raise InvalidArgumentError(
                f"{path} holds no file that a bundle takes (hidden ones and caches are left out); "
                "leave it out of --with"
            )
        for name, file in named:
            _take(files, name, file, max_bytes)
    if requirements is not None:
        if REQUIREMENTS in files:
            raise InvalidArgumentError(
                f"'{REQUIREMENTS}' is given twice; leave it out of --with, or --requirements out"
            )
        _take(files, REQUIREMENTS, requirements.expanduser(), max_bytes)
    if not files:
        raise InvalidArgumentError("a bundle holds at least one file; name files or folders")
    return bundle_of(files, max_bytes=max_bytes)


def bundle_of(files: Mapping[str, bytes], *, max_bytes: int = MAX_BUNDLE_BYTES) -> Bundle:
    """The bundle of these files, by name; raises InvalidArgumentError."""
    _check_content(files)
    archive = _written(files)
    if len(archive) > max_bytes:
        raise InvalidArgumentError(
            f"the bundle has {len(archive)} bytes, and at most {max_bytes} are taken; leave data "
            "out that the task does not need"
        )
    return Bundle(dict(files), archive)


def read_bundle(archive: bytes, *, digest: str = "", max_bytes: int = MAX_BUNDLE_BYTES) -> Bundle:
    """The bundle in ``archive``, which may be anybody's.

    Raises:
        InvalidArgumentError: it is not what ``digest`` names, or is not of the one form.
    """
    if len(archive) > max_bytes:
        raise InvalidArgumentError(
            f"the bundle has {len(archive)} bytes, and at most {max_bytes} are taken"
        )
    if digest and digest_of_archive(archive) != digest:
        raise InvalidArgumentError(
            f"the archive's digest is {digest_of_archive(archive)} and not {digest}: it was "
            "changed on the way, or named for another; build and send it again"
        )
    files: dict[str, bytes] = {}
    try:
        with tarfile.open(fileobj=io.BytesIO(archive), mode="r:") as tar:
            for member in tar:
                if not member.isreg() or member.issparse() or len(files) >= MAX_BUNDLE_FILES:
                    break  # what was read so far is not the whole archive
                source = tar.extractfile(member)
                assert source is not None
                files[member.name] = source.read()
    # What tarfile raises for damaged headers is not its own error alone.
    except (tarfile.TarError, ValueError, EOFError, OverflowError, OSError) as error:
        raise InvalidArgumentError(f"the bundle is no tar archive: {error}") from error
    _check_content(files)
    if not files or _written(files) != archive:
        raise InvalidArgumentError(
            f"the archive is not one that `troupe submit --with` builds: up to {MAX_BUNDLE_FILES} "
            "regular files in the order of their names, without links, owners, times or anything "
            "after them"
        )
    return Bundle(files, archive)


def unpack(bundle: Bundle, folder: Path) -> None:
    """Write the files of ``bundle`` to ``folder``, a new one, and leave them read-only."""
    folder.mkdir(mode=0o700)
    for name, content in bundle.files.items():
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
        target.chmod(0o400)
    for inner, _, _ in os.walk(folder, topdown=False):
        Path(inner).chmod(0o500)


def _named(path: Path, base: Path) -> Iterator[tuple[str, Path]]:
    """The files at ``path`` with their names in the bundle."""
    if not path.exists():
        raise InvalidArgumentError(f"there is no {path}; check the path (from {Path.cwd()})")
    real = path.resolve()
    if real == base:
        raise InvalidArgumentError(
            f"{path} is the whole working directory; name the files and folders that the job needs"
        )
    top = real.relative_to(base) if real.is_relative_to(base) else Path(real.name)
    if not real.is_dir():
        yield top.as_posix(), real
        return
    for inner, folders, names in os.walk(real):
        folders[:] = sorted(n for n in folders if n not in _SKIPPED and not n.startswith("."))
        for name in sorted((*names, *folders)):
            if Path(inner, name).is_symlink():
                raise InvalidArgumentError(f"{Path(inner, name)} is a link; put the file there")
        for name in sorted(names):
            if not name.startswith(".") and not name.endswith((".pyc", ".pyo")):
                file = Path(inner, name)
                yield (top / file.relative_to(real)).as_posix(), file


def _take(files: dict[str, bytes], name: str, file: Path, max_bytes: int) -> None:
    try:
        if not file.is_file():
            raise InvalidArgumentError(f"{file} is no regular file; a bundle holds files alone")
        left = max_bytes - sum(map(len, files.values()))
        if file.stat().st_size > left or len(files) >= MAX_BUNDLE_FILES:
            raise InvalidArgumentError(
                f"with {file} the bundle passes {max_bytes} bytes or {MAX_BUNDLE_FILES} files; "
                "leave out what the job does not need"
            )
        content = file.read_bytes()
    except OSError as error:
        raise InvalidArgumentError(f"{file} can't be read ({error.strerror})") from error
    if files.setdefault(name, content) != content:
        raise InvalidArgumentError(
            f"two files would be '{name}' in the bundle, {file} among them; rename one"
        )


def _check_content(files: Mapping[str, bytes]) -> None:
    _check_names(files)
    if REQUIREMENTS in files:
        check_requirements(files[REQUIREMENTS])


def _check_names(files: Mapping[str, bytes]) -> None:
    if len(files) > MAX_BUNDLE_FILES:
        raise InvalidArgumentError(f"{len(files)} files, and at most {MAX_BUNDLE_FILES} are taken")
    for name in files:
        parts = name.split("/")
        is_plain = len(name) <= MAX_NAME and len(parts) <= MAX_DEPTH
        if not is_plain or not all(_PART.fullmatch(part) for part in parts):
            raise InvalidArgumentError(
                f"{name[:200]!r} can't be a file's name in a bundle: at most {MAX_NAME} characters "
                f"and {MAX_DEPTH} folders, of letters, digits, '_', '.', '-', '+' and spaces, not "
                "beginning with '.'"
            )
        folders = ("/".join(parts[:end]) for end in range(1, len(parts)))
        if clash := next((folder for folder in folders if folder in files), None):
            raise InvalidArgumentError(f"'{clash}' is a file and a folder in the bundle")


def _written(files: Mapping[str, bytes]) -> bytes:
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for name in sorted(files):
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(files[name]), 0o444
            tar.addfile(member, io.BytesIO(files[name]))
    return target.getvalue()
