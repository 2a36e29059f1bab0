"""TROUPE_TLS_*: all, none or a refusal in words; roles of certificates; callers of methods."""

from importlib import import_module
from pathlib import Path

import pytest

from troupe.errors import InvalidArgumentError
from troupe.runtime.tls import ROLES, TlsFiles, configured
from troupe.runtime.tls.certificates import Authority, main, make
from troupe.runtime.tls.roles import CALLERS, host_of, peer_roles, roles_of


def test_tls_when_nothing_is_set_then_is_off(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CA", "CERT", "KEY"):
        monkeypatch.delenv(f"TROUPE_TLS_{name}", raising=False)
    assert configured() is None


@pytest.mark.parametrize("given", [("CA",), ("CERT", "KEY"), ("CA", "KEY")])
def test_tls_when_half_is_set_then_names_what_is_missing(
    given: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("CA", "CERT", "KEY"):
        monkeypatch.delenv(f"TROUPE_TLS_{name}", raising=False)
    for name in given:
        monkeypatch.setenv(f"TROUPE_TLS_{name}", "/somewhere")
    with pytest.raises(InvalidArgumentError, match="half configured") as caught:
        configured()
    said = caught.value.message.partition(" not set")[0]
    named = {name for name in ("CA", "CERT", "KEY") if f"TROUPE_TLS_{name}" in said}
    assert named == {"CA", "CERT", "KEY"} - set(given)


def test_files_when_missing_then_says_which(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError, match="There is no file"):
        TlsFiles(tmp_path / "ca.crt", tmp_path / "tls.crt", tmp_path / "tls.key")


def _files(folder: Path) -> TlsFiles:
    return TlsFiles(folder / "ca.crt", folder / "tls.crt", folder / "tls.key", reload_s=0.0)


def test_files_when_the_key_is_anothers_then_refuses(tmp_path: Path) -> None:
    authority = Authority.create()
    authority.issue(["env"], tmp_path / "a")
    authority.issue(["env"], tmp_path / "b")
    (tmp_path / "a" / "tls.key").write_bytes((tmp_path / "b" / "tls.key").read_bytes())
    with pytest.raises(InvalidArgumentError, match="key belongs to the certificate"):
        _files(tmp_path / "a")


def test_files_when_swapped_then_a_new_generation_only_if_they_fit(tmp_path: Path) -> None:
    authority = Authority.create()
    authority.issue(["env"], tmp_path / "a")
    authority.issue(["env"], tmp_path / "b")
    files = _files(tmp_path / "a")
    first = files.identity()
    assert first.generation == 1 and files.identity() is first
    (tmp_path / "b" / "tls.crt").replace(tmp_path / "a" / "tls.crt")
    assert files.identity() is first
    (tmp_path / "b" / "tls.key").replace(tmp_path / "a" / "tls.key")
    second = files.identity()
    assert second.generation == 2
    assert (second.cert, second.key) != (first.cert, first.key)
    (tmp_path / "a" / "tls.key").unlink()
    assert files.identity() is second


def test_files_when_a_folder_link_is_switched_then_are_read_again(tmp_path: Path) -> None:
    """As the kubelet updates a mounted Secret."""
    authority = Authority.create()
    for name in ("one", "two"):
        authority.issue(["env"], tmp_path / name)
    (tmp_path / "..data").symlink_to(tmp_path / "one")
    for name in ("ca.crt", "tls.crt", "tls.key"):
        (tmp_path / name).symlink_to(f"..data/{name}")
    files = _files(tmp_path)
    (tmp_path / "..new").symlink_to(tmp_path / "two")
    (tmp_path / "..new").replace(tmp_path / "..data")
    assert files.identity().cert == (tmp_path / "two" / "tls.crt").read_bytes()


def test_roles_when_read_from_names_then_other_names_mean_nothing() -> None:
    names = ["router.troupe.internal", "env.troupe.internal.evil", "trainer", "*.troupe.internal"]
    assert roles_of(names) == {"router"}
    assert roles_of(map(host_of, ROLES)) == set(ROLES)


@pytest.mark.parametrize(
    ("found", "roles"),
    [
        ({}, None),
        ({"security_level": [b"TSI_SECURITY_NONE"]}, None),
        ({"transport_security_type": [b"ssl"]}, set()),
        (
            {
                "transport_security_type": [b"ssl"],
                "x509_subject_alternative_name": [b"env.troupe.internal", b"\xff"],
            },
            {"env"},
        ),
    ],
)
def test_peer_when_asked_for_its_roles_then_only_tls_gives_some(
    found: dict[str, list[bytes]], roles: set[str] | None
) -> None:
    class Context:
        def auth_context(self) -> dict[str, list[bytes]]:
            return found

    assert peer_roles(Context()) == roles


def test_methods_when_listed_then_each_has_callers_and_answers_once() -> None:
    methods = {}
    for name in ("router", "env", "rollout", "trainer"):
        module = import_module(f"troupe.api.{name}.v1.{name}_pb2")
        for service in module.DESCRIPTOR.services_by_name.values():
            methods |= {f"/{service.full_name}/{m.name}": m for m in service.methods}
    assert set(CALLERS) == set(methods)
    assert all(CALLERS.values())
    # Callers are checked where one message answers (troupe/runtime/serving/authorization.py).
    assert not any(method.server_streaming for method in methods.values())


def test_keys_when_shared_with_containers_then_behind_a_closed_folder(tmp_path: Path) -> None:
    folder = tmp_path / "tls"
    assert main(["--into", str(folder), "--shared-keys"]) == 0
    assert folder.stat().st_mode & 0o077 == 0
    assert (folder / "env" / "tls.key").stat().st_mode & 0o777 == 0o644
    for private in ("authority/ca.key", "machine/tls.key"):
        assert (folder / private).stat().st_mode & 0o077 == 0


def test_certificates_when_made_twice_then_the_authority_stays(tmp_path: Path) -> None:
    assert main(["--into", str(tmp_path)]) == 0
    before = {p.relative_to(tmp_path): p.read_bytes() for p in tmp_path.rglob("*.*")}
    make(tmp_path, redis_hosts=["redis"])
    after = {p.relative_to(tmp_path): p.read_bytes() for p in tmp_path.rglob("*.*")}
    assert {p.name for p in tmp_path.iterdir()} == {*ROLES, "machine", "authority"}
    assert {str(p) for p in before if before[p] == after[p]} == {
        "authority/ca.crt",
        "authority/ca.key",
        *(f"{name}/ca.crt" for name in (*ROLES, "machine")),
    }
    assert all(p.stat().st_mode & 0o077 == 0 for p in tmp_path.rglob("*.key"))
    for name in (*ROLES, "machine"):
        assert _files(tmp_path / name).identity().generation == 1
