"""What lends a machine its credentials is never talked to, however it is spelt."""

import pytest

from troupe.errors import InvalidArgumentError, UnavailableError
from troupe.runtime.hosts import check_addresses, check_literal, host_of


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
def test_host_when_it_lends_credentials_then_is_refused_by_its_spelling(url: str) -> None:
    with pytest.raises(InvalidArgumentError, match="metadata addresses"):
        check_literal(host_of(url))


def test_name_when_it_resolves_to_a_forbidden_address_then_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def resolve(*_: object, **__: object) -> list[object]:
        return [(2, 1, 6, "", ("10.1.2.3", 0)), (2, 1, 6, "", ("169.254.169.254", 0))]

    check_addresses("http://127.0.0.1:1")
    monkeypatch.setattr("socket.getaddrinfo", resolve)
    with pytest.raises(InvalidArgumentError, match="metadata addresses"):
        check_addresses("http://innocent.example")


def test_name_when_nobody_knows_it_then_may_be_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def resolve(*_: object, **__: object) -> list[object]:
        raise OSError("no such name")

    monkeypatch.setattr("socket.getaddrinfo", resolve)
    with pytest.raises(UnavailableError, match="cannot be resolved"):
        check_addresses("http://unknown.example")


def test_url_when_it_is_none_then_says_so() -> None:
    assert host_of("HTTPS://Games.Example.:80/x") == "games.example"
    with pytest.raises(InvalidArgumentError, match="is not a URL"):
        host_of("http://[::1")
