"""Certificates are renewed by the authority that processes trust, and by no other unasked."""

from pathlib import Path

import pytest

from troupe.runtime.tls.certificates import Authority, main, make


def _contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*.*")}


def test_authority_when_kept_elsewhere_then_renews_from_there(tmp_path: Path) -> None:
    made, home = tmp_path / "tls", tmp_path / "safe"
    assert main(["--into", str(made), "--authority", str(home)]) == 0
    assert not (made / "authority").exists()
    before = _contents(tmp_path)
    assert main(["--into", str(made), "--authority", str(home)]) == 0
    after = _contents(tmp_path)
    assert before[made / "env/tls.crt"] != after[made / "env/tls.crt"]
    assert before[made / "env/ca.crt"] == after[made / "env/ca.crt"] == after[home / "ca.crt"]
    assert before[home / "ca.key"] == after[home / "ca.key"]


@pytest.mark.parametrize("gone", ["authority", "authority/ca.key"])
def test_authority_when_missing_after_certificates_were_issued_then_refuses(
    gone: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = tmp_path / "tls"
    assert main(["--into", str(made)]) == 0
    (made / gone).rename(tmp_path / "safe")
    before = _contents(made)
    assert main(["--into", str(made)]) == 1
    assert _contents(made) == before
    said = capsys.readouterr().err
    assert f"There is no {made / 'authority/ca.key'}" in said
    assert "--authority DIR" in said and "--new-authority" in said


def test_authority_when_another_than_was_issued_by_then_refuses(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made, other = tmp_path / "tls", tmp_path / "other"
    assert main(["--into", str(made)]) == 0
    Authority.create("another").save(other)
    before = _contents(made)
    assert main(["--into", str(made), "--authority", str(other)]) == 1
    assert _contents(made) == before
    assert f"does not hold the authority of {other}" in capsys.readouterr().err


def test_authority_when_every_ca_holds_both_then_the_other_one_issues(tmp_path: Path) -> None:
    made, other = tmp_path / "tls", tmp_path / "other"
    make(made, redis_hosts=["redis"])
    successor = Authority.create("another")
    successor.save(other)
    for path in made.glob("*/ca.crt"):
        path.write_bytes(path.read_bytes() + successor.pem())
    assert make(made, redis_hosts=["redis"], home=other).pem() == successor.pem()
    assert (made / "env" / "ca.crt").read_bytes() == successor.pem()


def test_authority_when_a_new_one_is_asked_for_then_is_made(tmp_path: Path) -> None:
    assert main(["--into", str(tmp_path)]) == 0
    before = _contents(tmp_path)
    (tmp_path / "authority" / "ca.key").unlink()
    assert main(["--into", str(tmp_path), "--new-authority"]) == 0
    after = _contents(tmp_path)
    assert before.keys() == after.keys()
    assert all(before[path] != after[path] for path in before)
    assert after[tmp_path / "env/ca.crt"] == after[tmp_path / "authority/ca.crt"]
