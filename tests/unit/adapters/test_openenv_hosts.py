"""Which servers a task may name."""

import pytest

from troupe.errors import InvalidArgumentError
from troupe_tasks.adapters.hosts import check_host, check_reached
from troupe_tasks.adapters.openenv import OpenEnvFamily, OpenEnvParams


def test_host_when_it_lends_credentials_then_no_setting_allows_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TROUPE_OPENENV_HOSTS", "*")
    for url in ("http://169.254.169.254", "http://metadata.google.internal"):
        with pytest.raises(InvalidArgumentError, match="metadata addresses"):
            check_host(url)
        with pytest.raises(InvalidArgumentError, match="metadata addresses"):
            OpenEnvFamily(OpenEnvParams(url=url, text_field="x", return_bound=1.0))


@pytest.mark.parametrize(
    ("url", "is_allowed"),
    [
        ("http://games.envs.example:8000", True),
        ("http://GAMES.envs.example", True),
        ("http://one.example", True),
        ("http://two.example", False),
        ("http://envs.example.evil", False),
        ("http://one.example@two.example", False),
        ("http://127.0.0.1:6379", False),
    ],
)
def test_host_when_a_list_is_set_then_only_those(
    url: str, is_allowed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TROUPE_OPENENV_HOSTS", "*.envs.example, one.example")
    if is_allowed:
        assert check_host(url)
        return
    with pytest.raises(InvalidArgumentError, match="TROUPE_OPENENV_HOSTS"):
        check_host(url)


def test_host_when_it_is_reached_then_its_addresses_are_looked_at_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    check_reached("http://127.0.0.1:1")
    monkeypatch.setattr("socket.getaddrinfo", lambda *_, **__: [(2, 1, 6, "", ("0.0.0.0", 0))])
    with pytest.raises(InvalidArgumentError, match="metadata addresses"):
        check_reached("http://innocent.example")
