"""Checks the origin of web pages, and the host name by which a router without keys is asked.

A browser sends the requests of any page, with this router's cookie or from inside its network. So
a page is known by its Origin, and a stranger's name that leads here (DNS rebinding) by its Host.
"""

import ipaddress
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from urllib.parse import urlsplit

from troupe.clients.rest.errors import ForbiddenError

_INNER = ("*.localhost", "*.svc", "*.svc.cluster.local")
"""Names that no stranger can register: this machine's, and a cluster's Services."""


def check_origin(headers: Mapping[str, str]) -> None:
    """Raise ForbiddenError for the request of another site's page; programs send no Origin."""
    origin = headers.get("origin")
    if origin is not None and _place(origin) != headers.get("host", "").lower():
        raise ForbiddenError(
            f"a page of {origin[:100]!r} may not act here; use the router's page (a proxy "
            "before the router must leave the Host header as it is)"
        )


def check_host(
    headers: Mapping[str, str], allowed: Sequence[str], prefix: str = "TROUPE_ROUTER_"
) -> None:
    """Raise ForbiddenError where a router without keys is asked by a name that may be a stranger's.

    Addresses, names without a dot and those of ``_INNER`` are nobody's to register; ``allowed``
    are the operator's own, with * for any part, from the variable that begins with ``prefix``.
    """
    host = headers.get("host", "")
    try:
        name = (urlsplit(f"//{host}").hostname or "").rstrip(".")
    except ValueError:
        name = host
    if "." not in name or _is_address(name):
        return
    if any(fnmatchcase(name, pattern.lower()) for pattern in (*_INNER, *allowed)):
        return
    raise ForbiddenError(
        f"there are no keys here, so known host names only are accepted, not '{name[:100]}'; "
        f"have the operator add it to {prefix}HOSTS, or use keys"
    )


def _place(origin: str) -> str:
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return ""


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name.partition("%")[0])
    except ValueError:
        return False
    return True
