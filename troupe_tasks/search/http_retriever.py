"""A retrieval server by Search-R1's protocol, with guards and a store that replays its answers.

``POST <url> {"queries": [...], "topk": n, "return_scores": true}``. The address comes from the
service's settings, never from a spec or an agent; an agent's text is only ever a string in the
JSON body. The address is resolved once and connected to as resolved, so a name can't be pointed
elsewhere later. A server's answers may change, and a step may not: each answer is stored by the
digest of its query, and the first stored one counts.
"""

import hashlib
import http.client
import ipaddress
import json
import os
import socket
import ssl
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

from troupe.durable import make_folder
from troupe.errors import InvalidArgumentError, UnavailableError
from troupe.runtime.hosts import check_literal
from troupe_tasks.search.bm25 import Document
from troupe_tasks.search.retrievers import document_of

MAX_ANSWER_BYTES = 64 * 1024
TOP_K = 5
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
_PORTS = {"http": 80, "https": 443}


class SearchServerSettings(BaseSettings):
    """``TROUPE_ENV_SEARCH_*``."""

    model_config = SettingsConfigDict(
        env_prefix="TROUPE_ENV_SEARCH_", extra="ignore", use_attribute_docstrings=True
    )

    url: str = ""
    """Address of the retrieval server: ``http://10.0.0.7:8000/retrieve``; a query behind it is sent
    too."""
    allowed: str = ""
    """Host:port pairs that may be private or loopback addresses, comma-separated."""
    store: Path | None = None
    """Folder of stored answers; all env pods of a job share it. Required: without it a step is not
    pure."""
    timeout_s: float = Field(default=2.0, gt=0.0, le=60.0)
    """Longest time for a connection and for each read."""


class HttpRetriever:
    """Pages of a retrieval server; safe to use from several threads.

    Raises InvalidArgumentError when the settings lack an address or a store, or the address is
    refused.
    """

    def __init__(self, settings: SearchServerSettings) -> None:
        if not settings.url or settings.store is None:
            raise InvalidArgumentError(
                "the retriever 'http' needs TROUPE_ENV_SEARCH_URL and TROUPE_ENV_SEARCH_STORE (a "
                "folder "
                "of stored answers, shared by all env pods)",
                pointer="/task/params/retriever",
            )
        try:
            parts = urlsplit(settings.url)
            port = parts.port
        except ValueError as error:
            raise InvalidArgumentError(f"TROUPE_ENV_SEARCH_URL is no address: {error}") from error
        if parts.scheme not in _PORTS or not parts.hostname or parts.username is not None:
            raise InvalidArgumentError("TROUPE_ENV_SEARCH_URL is no http or https address")
        self._host = parts.hostname
        self._is_tls = parts.scheme == "https"
        self._port = port or _PORTS[parts.scheme]
        self._path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        self._timeout_s = settings.timeout_s
        self._store = settings.store
        self._address = checked_address(self._host, self._port, settings.allowed)

    def search(self, query: str, limit: int) -> Sequence[Document]:
        """The stored answer for ``query``, else the server's, which is stored.

        Raises UnavailableError (retryable) when the server fails: never a reward.
        """
        path = self._store / f"{hashlib.sha256(query.encode()).hexdigest()}.json"
        if not path.exists():
            self._keep(path, self._asked(query))
        stored = json.loads(path.read_text("utf-8"))
        return [Document(title, text) for title, text in stored[:limit]]

    def _asked(self, query: str) -> list[tuple[str, str]]:
        body = json.dumps({"queries": [query], "topk": TOP_K, "return_scores": True}).encode()
        connection = http.client.HTTPConnection(self._host, self._port, timeout=self._timeout_s)
        try:
            connection.sock = self._connected()
            headers = {"Content-Type": "application/json", "Host": f"{self._host}:{self._port}"}
            connection.request("POST", self._path, body, headers)
            answer = connection.getresponse()
            data = answer.read(MAX_ANSWER_BYTES + 1)
        except (OSError, http.client.HTTPException) as error:
            raise UnavailableError(f"the search server fails: {type(error).__name__}") from error
        finally:
            connection.close()
        if answer.status != http.HTTPStatus.OK:
            raise UnavailableError(f"the search server answers with status {answer.status}")
        if len(data) > MAX_ANSWER_BYTES:
            raise UnavailableError(f"the search server answers more than {MAX_ANSWER_BYTES} bytes")
        return read_answer(data)

    def _connected(self) -> socket.socket:
        """To the address that was resolved at the start, whatever the name says now."""
        raw = socket.create_connection((self._address, self._port), timeout=self._timeout_s)
        if not self._is_tls:
            return raw
        try:
            return ssl.create_default_context().wrap_socket(raw, server_hostname=self._host)
        except OSError:
            raw.close()
            raise

    def _keep(self, path: Path, pages: list[tuple[str, str]]) -> None:
        """Store an answer unless another pod was first."""
        make_folder(path.parent)
        draft = path.with_name(f".{path.name}.{os.getpid()}.{id(pages)}")
        draft.write_text(json.dumps(pages), encoding="utf-8")
        try:
            os.link(draft, path)
        except FileExistsError:
            pass
        finally:
            draft.unlink()


def checked_address(host: str, port: int, allowed: str) -> str:
    """The one address that ``host`` has now.

    Raises:
        InvalidArgumentError: an address of it is link-local, a metadata server's, or private
        without
            ``host:port`` in ``allowed``.
        UnavailableError: the name can't be resolved now.
    """
    check_literal(host)
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise UnavailableError(f"the host name {host} cannot be resolved") from error
    addresses = [str(entry[4][0]).partition("%")[0] for entry in found]
    is_listed = f"{host}:{port}" in {part.strip() for part in allowed.split(",")}
    for address in addresses:
        check_literal(address)
        if not is_listed and not _is_public(address):
            raise InvalidArgumentError(
                f"the search server {host}:{port} is a private address; if it is meant, list "
                f"{host}:{port} in TROUPE_ENV_SEARCH_ALLOWED"
            )
    return addresses[0]


def _is_public(address: str) -> bool:
    found = ipaddress.ip_address(address)
    inner = _embedded(found) if isinstance(found, ipaddress.IPv6Address) else None
    effective = inner or found
    return effective.is_global and not effective.is_multicast


def _embedded(address: ipaddress.IPv6Address) -> ipaddress.IPv4Address | None:
    """The IPv4 address that an IPv6 address leads to: mapped, 6to4, Teredo or NAT64."""
    if address in _NAT64:
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    teredo = address.teredo
    return address.ipv4_mapped or address.sixtofour or (teredo[1] if teredo else None)


def read_answer(data: bytes) -> list[tuple[str, str]]:
    """Titles and texts of a server's answer to one query, with or without scores.

    Raises UnavailableError when it has another form.
    """
    try:
        results = cast("Mapping[str, Any]", json.loads(data))["result"][0]
        pages = [document_of(str(_page(item)["contents"])) for item in results[:TOP_K]]
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise UnavailableError(
            "the search server's answer is none of Search-R1's protocol "
            '({"result": [[{"document": {"contents": ...}, "score": ...}]]})'
        ) from error
    return [(page.title, page.text) for page in pages]


def _page(item: Any) -> Mapping[str, Any]:
    return item.get("document", item)
