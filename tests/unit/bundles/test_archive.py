"""The one form of a bundle's archive, and what anybody may send in its place."""

import io
import os
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from troupe.bundles.archive import (
    MAX_BUNDLE_FILES,
    Bundle,
    build_bundle,
    bundle_of,
    digest_of_archive,
    read_bundle,
    unpack,
)
from troupe.errors import InvalidArgumentError

LOCK = b"tiny==1 --hash=sha256:" + b"0" * 64


def member(name: str, content: bytes = b"x", **more: object) -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.size, info.mode = len(content), 0o444
    for field, value in more.items():
        setattr(info, field, value)
    return info, content


def tar(*members: tuple[tarfile.TarInfo, bytes], format: int = tarfile.USTAR_FORMAT) -> bytes:
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w", format=format) as archive:
        for info, content in members:
            archive.addfile(info, io.BytesIO(content))
    return target.getvalue()


def test_bundle_when_built_of_equal_files_in_other_places_then_has_one_digest(
    tmp_path: Path,
) -> None:
    digests: set[str] = set()
    for place, order in (("a", (0, 1)), ("b", (1, 0))):
        folder = tmp_path / place
        (folder / "rewards").mkdir(parents=True)
        (folder / "my_task.py").write_text("class MyTask: ...\n")
        (folder / "rewards" / "fluency.py").write_text("def score(t, task): return 1.0\n")
        (folder / "rewards" / ".env").write_text("KEY=1")
        (folder / "rewards" / "__pycache__").mkdir()
        (folder / "rewards" / "__pycache__" / "x.pyc").write_bytes(b"\0")
        paths = ("my_task.py", "rewards")
        bundle = build_bundle([folder / paths[i] for i in order], root=folder)
        assert sorted(bundle.files) == ["my_task.py", "rewards/fluency.py"]
        digests.add(bundle.digest)
    assert len(digests) == 1


def test_bundle_when_read_and_unpacked_then_is_what_was_built(tmp_path: Path) -> None:
    built = bundle_of({"a/b/c.py": b"1", "d.txt": b"", "requirements.lock": LOCK})
    read = read_bundle(built.archive, digest=built.digest)
    assert (read.files, read.has_requirements) == (built.files, True)
    unpack(read, tmp_path / "out")
    assert (tmp_path / "out/a/b/c.py").read_bytes() == b"1"
    assert (tmp_path / "out/a/b/c.py").stat().st_mode & 0o777 == 0o400
    assert (tmp_path / "out/a").stat().st_mode & 0o777 == 0o500


def test_bundle_when_a_path_lies_elsewhere_then_goes_to_the_top(tmp_path: Path) -> None:
    (tmp_path / "here" / "src").mkdir(parents=True)
    (tmp_path / "there").mkdir()
    (tmp_path / "here/src/my_task.py").write_text("1")
    (tmp_path / "there/helper.py").write_text("2")
    paths = [tmp_path / "here/src/my_task.py", tmp_path / "there/helper.py"]
    bundle = build_bundle(paths, root=tmp_path / "here")
    assert sorted(bundle.files) == ["helper.py", "src/my_task.py"]
    assert bundle.holds_module("src/my_task.py")
    assert bundle.holds_module("helper")
    assert bundle.holds_module("src")
    assert not bundle.holds_module("src.other")


@pytest.mark.parametrize(
    "make",
    [
        lambda root: [root / "missing.py"],
        lambda root: [root],
        lambda root: [root / "links"],
        lambda root: [root / "a/same.py", root.parent / "same.py"],
        lambda root: [root / "pipe"],
        lambda root: [root, root / "pipe"],
        lambda root: [root, root / "empty"],
        lambda root: [],
    ],
    ids=[
        "missing",
        "working folder",
        "link inside",
        "two of one name",
        "pipe",
        "file and pipe",
        "file and empty folder",
        "nothing",
    ],
)
def test_bundle_when_its_paths_are_wrong_then_says_so(
    make: Callable[[Path], list[Path]], tmp_path: Path
) -> None:
    root = tmp_path / "root"
    (root / "links").mkdir(parents=True)
    (root / "links/l.py").symlink_to("/etc/passwd")
    (root / "same.py").write_text("1")
    (root / "empty/.hidden").mkdir(parents=True)
    (root / "a").mkdir()
    (root / "a/same.py").write_text("1")
    (root.parent / "same.py").write_text("2")
    os.mkfifo(root / "pipe")
    paths = make(root)
    if len(paths) == 2:
        paths = [root / "same.py", paths[1]]
    with pytest.raises(InvalidArgumentError):
        build_bundle(paths, root=root)


@pytest.mark.parametrize(
    "name",
    ["../up.py", "/etc/x", "a/../b.py", "a//b", ".hidden", "a/.git/config", "x\0y", "ü.py", "a\nb",
     "n" * 101, "/".join("d" * 20), "", "a/"],
)  # fmt: skip
def test_bundle_when_a_name_leads_out_or_is_odd_then_is_refused(name: str) -> None:
    with pytest.raises(InvalidArgumentError):
        bundle_of({name: b"x"})


def test_bundle_when_a_name_is_a_file_and_a_folder_then_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="a file and a folder"):
        bundle_of({"a": b"", "a/b": b""})


ATTACKS: dict[str, bytes] = {
    "no tar": b"x" * 10240,
    "empty": b"",
    "link": tar(member("l", b"", type=tarfile.SYMTYPE, linkname="/etc/passwd")),
    "hard link": tar(member("a.py"), member("l", b"", type=tarfile.LNKTYPE, linkname="a.py")),
    "device": tar(member("d", b"", type=tarfile.CHRTYPE)),
    "fifo": tar(member("d", b"", type=tarfile.FIFOTYPE)),
    "folder": tar(member("d", b"", type=tarfile.DIRTYPE), member("d/a.py")),
    "up": tar(member("../a.py")),
    "absolute": tar(member("/a.py")),
    "dots inside": tar(member("a/../../a.py")),
    "order": tar(member("b.py"), member("a.py")),
    "twice": tar(member("a.py"), member("a.py", b"y")),
    "owner": tar(member("a.py", uid=0, uname="root")),
    "time": tar(member("a.py", mtime=1)),
    "set-uid": tar(member("a.py", mode=0o4777)),
    "pax": tar(member("a.py", pax_headers={"path": "../x"}), format=tarfile.PAX_FORMAT),
    "gnu long name": tar(member("n" * 200), format=tarfile.GNU_FORMAT),
    "after the end": bundle_of({"a.py": b"x"}).archive + b"\0" * 512 + b"hidden",
    "sparse": tar(member("a.py", type=tarfile.GNUTYPE_SPARSE), format=tarfile.GNU_FORMAT),
    "many": tar(*[member(f"f{i:05d}") for i in range(MAX_BUNDLE_FILES + 1)]),
    "cut": bundle_of({"a.py": b"x" * 5000}).archive[:3000],
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_archive_when_it_is_of_another_form_then_is_refused(attack: str) -> None:
    archive = ATTACKS[attack]
    with pytest.raises(InvalidArgumentError):
        read_bundle(archive, digest=digest_of_archive(archive))


def test_archive_when_a_header_claims_more_than_there_is_then_is_refused_in_little_memory() -> None:
    info, _ = member("a.py", b"")
    info.size = 7 << 30
    header = info.tobuf(tarfile.USTAR_FORMAT)
    archive = header + b"\0" * (10240 - len(header))
    with pytest.raises(InvalidArgumentError):
        read_bundle(archive)


def test_archive_when_the_digest_is_anothers_then_is_refused() -> None:
    one, other = bundle_of({"a.py": b"1"}), bundle_of({"a.py": b"2"})
    with pytest.raises(InvalidArgumentError, match="changed on the way"):
        read_bundle(one.archive, digest=other.digest)


def test_archive_when_too_large_then_is_refused_before_it_is_read() -> None:
    with pytest.raises(InvalidArgumentError, match="at most 1000"):
        read_bundle(b"x" * 1001, max_bytes=1000)
    with pytest.raises(InvalidArgumentError, match="at most 1000"):
        bundle_of({"a": b"x"}, max_bytes=1000)
    assert isinstance(bundle_of({"a": b"x"}), Bundle)
