"""One authority, a certificate for each role, and processes of the test that hold one of them."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tls_world import environment, issue

from troupe.runtime.tls import ROLES, Role
from troupe.runtime.tls.certificates import Authority

pytest.importorskip("cryptography", reason="cryptography is not installed: no certificates")


@pytest.fixture(scope="session")
def authority() -> Authority:
    return Authority.create("test")


@pytest.fixture(scope="session")
def certificates(authority: Authority, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for each role."""
    folder = tmp_path_factory.mktemp("tls")
    for role in ROLES:
        issue(authority, [role], folder / role)
    return folder


@pytest.fixture
def become(
    certificates: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[Role | Path | None], None]]:
    """``become("env")``: what is made from now on holds that certificate; None: none at all."""
    monkeypatch.setenv("TROUPE_TLS_RELOAD_S", "0")

    def call(who: Role | Path | None) -> None:
        folder = certificates / who if isinstance(who, str) else who
        for name, value in environment(folder or certificates).items():
            if folder is None:
                monkeypatch.delenv(name, raising=False)
            else:
                monkeypatch.setenv(name, value)

    call(None)
    return call
