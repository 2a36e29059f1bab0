"""A client of an OCI registry, as far as a team needs it: blobs and one manifest.

Streams, so a blob of any size fits in memory; every request has a deadline; every digest is
checked. The password goes to the registry's host and its token service alone.
Source: OCI distribution spec 1.1, "Push" and "Pull"; Docker registry token authentication.
"""

import base64
import hashlib
import ipaddress
import json
import re
from collections.abc import Collection, Generator, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast
from urllib.parse import urljoin, urlsplit

import httpx

from troupe.errors import (
    DeadlineError,
    ForbiddenError,
    InvalidArgumentError,
    NotFoundError,
    UnavailableError,
)
from troupe.publishing.content import ContentFile
from troupe.publishing.places import OciPlace
from troupe.publishing.settings import PublishSettings
from troupe.runtime.plain_answers import PLAIN, read_plain

MANIFEST_TYPE = "application/vnd.oci.image.manifest.v1+json"
_CHALLENGE = re.compile(r'(\w+)="([^"]*)"')
_MAX_MANIFEST_BYTES = 4 << 20
_MAX_TOKEN_BYTES = 1 << 20
_MAX_TRIES = 4
_UNAUTHORIZED, _FORBIDDEN, _NOT_FOUND = 401, 403, 404


class RegistryClient:
    """A connection to the repository of ``place``; close it after use."""

    def __init__(self, place: OciPlace, settings: PublishSettings) -> None:
        is_plain = settings.oci_plain_http or _is_loopback(place.host)
        self._place = place
        self._base = f"{'http' if is_plain else 'https'}://{place.host}/v2/{place.repository}/"
        self._login = (settings.oci_username, settings.oci_password.get_secret_value())
        self._http = httpx.Client(timeout=settings.timeout_s, follow_redirects=False, headers=PLAIN)
        self._authorization = ""

    def __enter__(self) -> "RegistryClient":
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()

    def has_blob(self, digest: str) -> bool:
        """Whether the registry holds a blob."""
        with self._answer("HEAD", f"blobs/{digest}", allowed=(200, 307, 404)) as answer:
            return answer.status_code != _NOT_FOUND

    def put_blob(self, file: ContentFile) -> str:
        """Send a blob that is not there yet; its digest."""
        digest = f"sha256:{file.entry.sha256}"
        if self.has_blob(digest):
            return digest
        with self._answer("POST", "blobs/uploads/", allowed=(202,)) as begun:
            if "location" not in begun.headers:
                raise UnavailableError(f"{self._place}: the registry does not say where blobs go")
            location = urljoin(str(begun.request.url), begun.headers["location"])
        if urlsplit(location).scheme != urlsplit(self._base).scheme:
            raise UnavailableError(f"{self._place}: the registry wants the blob without TLS")
        url = str(httpx.URL(location).copy_merge_params({"digest": digest}))
        headers = {"content-type": "application/octet-stream"}
        with self._answer("PUT", url, headers=headers, body=file, allowed=(201,)):
            return digest

    def put_manifest(self, document: dict[str, Any]) -> str:
        """Put the manifest under the place's tag; its digest."""
        body = ContentFile(json.dumps(document, sort_keys=True, separators=(",", ":")).encode())
        path, headers = f"manifests/{self._place.reference}", {"content-type": MANIFEST_TYPE}
        with self._answer("PUT", path, headers=headers, body=body, allowed=(201,)):
            return f"sha256:{body.entry.sha256}"

    def manifest(self) -> tuple[str, dict[str, Any]]:
        """Digest and content of the place's manifest."""
        reference = self._place.reference
        with self._answer(
            "GET", f"manifests/{reference}", headers={"accept": MANIFEST_TYPE}
        ) as answer:
            data = read_plain(
                answer,
                f"{self._place}: the registry",
                _MAX_MANIFEST_BYTES,
                "no manifest is so long",
            )
        digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
        if reference.startswith("sha256:") and digest != reference:
            raise UnavailableError(f"{self._place}: the registry sent another manifest, {digest}")
        return digest, self._document(data, "a manifest")

    def fetch_blob(self, digest: str, size: int, target: Path) -> None:
        """Write a blob of ``size`` bytes to ``target``; raises UnavailableError for others."""
        seen = hashlib.sha256()
        with self._answer("GET", f"blobs/{digest}") as answer, target.open("wb") as file:
            for chunk in self._body(answer, size):
                seen.update(chunk)
                file.write(chunk)
        if f"sha256:{seen.hexdigest()}" != digest:
            raise UnavailableError(f"{self._place}: blob {digest} arrived with other bytes")

    def _body(self, answer: httpx.Response, most: int) -> Iterator[bytes]:
        total = 0
        for chunk in answer.iter_bytes(1 << 20):
            total += len(chunk)
            if total > most:
                raise InvalidArgumentError(f"{self._place}: more than {most} bytes came")
            yield chunk

    @contextmanager
    def _answer(
        self,
        method: str,
        path: str,
        *,
        headers: Mapping[str, str] | None = None,
        body: ContentFile | None = None,
        allowed: Collection[int] = (200,),
    ) -> Generator[httpx.Response]:
        """The answer to a request; logs in when asked to, and follows redirects of a GET."""
        url = urljoin(self._base, path)
        has_logged_in = False
        try:
            for _ in range(_MAX_TRIES):
                answer = self._http.send(self._request(method, url, headers, body), stream=True)
                try:
                    challenge = answer.headers.get("www-authenticate", "")
                    if answer.status_code == _UNAUTHORIZED and challenge and not has_logged_in:
                        has_logged_in = True
                        self._authorization = self._log_in(challenge)
                    elif method == "GET" and answer.has_redirect_location:
                        url = urljoin(url, answer.headers["location"])
                    else:
                        self._check(answer, allowed)
                        yield answer
                        return
                finally:
                    answer.close()
        except httpx.TimeoutException as error:
            raise DeadlineError(f"{self._place}: the registry was silent for too long") from error
        except httpx.HTTPError as error:
            raise UnavailableError(
                f"{self._place}: the registry does not answer ({type(error).__name__}); try again: "
                "what was sent is not sent twice"
            ) from error
        raise UnavailableError(f"{self._place}: the registry sends from one address to another")

    def _request(
        self, method: str, url: str, headers: Mapping[str, str] | None, body: ContentFile | None
    ) -> httpx.Request:
        """The login goes to the registry's own host alone."""
        more = dict(headers or {})
        if self._authorization and urlsplit(url).netloc == urlsplit(self._base).netloc:
            more["authorization"] = self._authorization
        if body is None:
            return self._http.build_request(method, url, headers=more)
        more["content-length"] = str(body.entry.size_bytes)
        return self._http.build_request(method, url, headers=more, content=body.chunks())

    def _log_in(self, challenge: str) -> str:
        """The authorization that ``challenge`` asks for."""
        scheme = challenge.partition(" ")[0].lower()
        user, password = self._login
        if scheme == "basic" and user:
            return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()
        if scheme != "bearer":
            return ""
        asked = dict(_CHALLENGE.findall(challenge))
        realm = asked.pop("realm", "")
        if urlsplit(realm).scheme != "https" and not self._base.startswith("http:"):
            raise UnavailableError(f"{self._place}: the registry wants a login without TLS")
        wanted = {name: asked[name] for name in ("service", "scope") if name in asked}
        auth = httpx.BasicAuth(user, password) if user else None
        with self._http.stream("GET", realm, params=wanted, auth=auth) as answer:
            self._check(answer, (200,))
            where = f"{self._place}: the registry's token service"
            data = read_plain(answer, where, _MAX_TOKEN_BYTES, "no token is so long")
        document = self._document(data, "a token")
        token = document.get("token") or document.get("access_token")
        if not isinstance(token, str):
            raise UnavailableError(f"{where} answered without a token")
        return f"Bearer {token}"

    def _document(self, data: bytes, what: str) -> dict[str, Any]:
        """The JSON object that ``data`` holds."""
        try:
            document = json.loads(data)
        except ValueError:
            document = None
        if not isinstance(document, dict):
            raise UnavailableError(f"{self._place}: the registry sent no JSON object as {what}")
        return cast("dict[str, Any]", document)

    def _check(self, answer: httpx.Response, allowed: Collection[int]) -> None:
        status = answer.status_code
        if status in allowed:
            return
        if status in (_UNAUTHORIZED, _FORBIDDEN):
            raise ForbiddenError(
                f"{self._place}: the registry refuses this login ({status}); set "
                "TROUPE_PUBLISH_OCI_USERNAME and TROUPE_PUBLISH_OCI_PASSWORD"
            )
        if status == _NOT_FOUND:
            raise NotFoundError(f"{self._place}: the registry has no such artifact")
        raise UnavailableError(
            f"{self._place}: the registry answered {status} to {answer.request.method}; try again: "
            "what was sent is not sent twice"
        )


def _is_loopback(host: str) -> bool:
    name = host.rpartition(":")[0] or host
    try:
        return name == "localhost" or ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False
