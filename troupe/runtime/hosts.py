"""Classifies hosts and addresses: which are only this machine, and which no spec may connect to.

Forbidden are the metadata servers that hand a machine its credentials. Owns the parsing of hosts
and addresses, for tasks and trackers alike; each has a setting for which other hosts it allows.
"""

import ipaddress
import socket
from urllib.parse import urlsplit

from troupe.errors import InvalidArgumentError, UnavailableError

_METADATA_NAMES = frozenset({"metadata", "metadata.google.internal", "instance-data"})
_METADATA_ADDRESSES = frozenset({"100.100.100.200", "192.0.0.192", "fd00:ec2::254"})
_Address = ipaddress.IPv4Address | ipaddress.IPv6Address


def check_addresses(url: str) -> None:
    """Raise InvalidArgumentError when ``url`` resolves to a forbidden address. Queries DNS.

    Raises:
        UnavailableError: the name can't be resolved now.
    """
    host = host_of(url)
    check_literal(host)
    try:
        resolved = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError as error:
        raise UnavailableError(f"the host name {host} cannot be resolved: {error}") from error
    for entry in resolved:
        if _is_forbidden(ipaddress.ip_address(str(entry[4][0]).partition("%")[0])):
            raise _forbidden(host)


def host_of(url: str) -> str:
    """The host in ``url``, in lower case; raises InvalidArgumentError when it is not a URL."""
    try:
        return (urlsplit(url).hostname or "").rstrip(".")
    except ValueError as error:
        raise InvalidArgumentError(f"{url!r} is not a URL ({error})", pointer="/url") from error


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches ``host``; empty means 127.0.0.1 here."""
    if host in ("", "localhost"):
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def check_literal(host: str) -> None:
    """Raise InvalidArgumentError for a host that is forbidden as written; makes no DNS query."""
    literal = _literal(host)
    if host in _METADATA_NAMES or (literal is not None and _is_forbidden(literal)):
        raise _forbidden(host)


def _literal(host: str) -> _Address | None:
    """The address that ``host`` spells, parsed as the system does: also 0x7f.1 and 2130706433."""
    try:
        return ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        pass
    try:
        return ipaddress.IPv4Address(socket.inet_aton(host))
    except (OSError, UnicodeError):
        return None


def _is_forbidden(address: _Address) -> bool:
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    effective = mapped or address
    return (
        effective.is_link_local
        or effective.is_multicast
        or effective.is_unspecified
        or str(effective) in _METADATA_ADDRESSES
    )


def _forbidden(host: str) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"nothing of a spec talks to {host}: link-local and metadata addresses lend out a "
        "machine's credentials; name the server itself",
        pointer="/url",
    )
