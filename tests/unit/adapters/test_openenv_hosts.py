"""Which servers a spec may name."""

import pytest

from troupe.adapters.hosts import check_host, check_reached
from troupe.adapters.openenv import OpenEnvFamily, OpenEnvParams
from troupe.errors import InvalidArgumentError


@pytest.mark.parametrize(
    "url",
    [
        "http://169.254.169.254/latest/meta-data",
        "http://[fe80::1%25eth0]:80",
        "http://[::ffff:169.254.169.254]",
        "http://[fd00:ec2::254]",
        "http://2852039166/",
        "http://0xa9.0xfe.0xa9.0xfe",
        "http://metadata.google.internal.",
        "http://METADATA.google.internal",
        "http://100.100.100.200",
        "http://0.0.0.0:8080",
        "http://224.0.0.1",
    ],
)
def test_host_when_it_lends_credentials_then_is_refused_always(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TROUPE_OPENENV_HOSTS", "*")
    with pytest.raises(InvalidArgumentError, match="metadata addresses"):
        check_host(url)
    with pytest.raises(InvalidArgumentError, match="metadata addresses"):
        OpenEnvFamily(OpenEnvParams(url=url.rstrip("/"), text_field="x", return_bound=1.0))


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


def test_name_when_it_resolves_to_a_forbidden_address_then_is_not_reached(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def resolve(*_: object, **__: object) -> list[object]:
        return [(2, 1, 6, "", ("10.1.2.3", 0)), (2, 1, 6, "", ("169.254.169.254", 0))]

    check_reached("http://127.0.0.1:1")
    monkeypatch.setattr("socket.getaddrinfo", resolve)
    with pytest.raises(InvalidArgumentError, match="metadata addresses"):
        check_reached("http://innocent.example")
