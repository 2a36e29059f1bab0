"""Routes of the web page: one document for every path of the page, and its static files.

All data comes from ``/v1`` with the visitor's own key, so nothing here needs one. The document's
policy forbids inline scripts, ``eval`` and any other host; a nonce made for each answer lets the
component library add its own style elements.
"""

import asyncio
import secrets

from fastapi import APIRouter, Request
from starlette.responses import Response

from troupe_router.web.files import PageFiles

PAGES = ("/", "/jobs", "/jobs/{rest:path}", "/new", "/cluster")
_YEAR = "public, max-age=31536000, immutable"
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'nonce-{nonce}'; "
    "img-src 'self' data:; font-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_GUARDS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
}


def web_routes(files: PageFiles | None = None) -> APIRouter:
    """The routes; ``files`` are the shipped ones unless a test brings its own."""
    routes = APIRouter(include_in_schema=False)
    kept = files or PageFiles()

    async def document() -> Response:
        digest = await asyncio.to_thread(kept.refresh)
        nonce = secrets.token_urlsafe(16)
        return Response(
            _document(kept, digest, nonce),
            media_type="text/html",
            headers={
                "Content-Security-Policy": _POLICY.format(nonce=nonce),
                "Cache-Control": "no-store",
                **_GUARDS,
            },
        )

    async def static(request: Request, digest: str, name: str) -> Response:
        current = await asyncio.to_thread(kept.refresh)
        file = kept.get(name)
        headers = {
            "Cache-Control": _YEAR if digest == current else "no-store",
            "Vary": "Accept-Encoding",
            **_GUARDS,
        }
        body = file.body
        if "gzip" in request.headers.get("accept-encoding", ""):
            compressed = await asyncio.to_thread(lambda: file.compressed)
            if compressed is not None:
                body, headers["Content-Encoding"] = compressed, "gzip"
        return Response(body, media_type=file.media_type, headers=headers)

    for path in PAGES:
        routes.add_api_route(path, document)
    routes.add_api_route("/static/{digest}/{name:path}", static)
    return routes


def _document(files: PageFiles, digest: str, nonce: str) -> str:
    """The document with its nonce, and with every module announced so that none waits."""
    preloads = [
        f'<link rel="modulepreload" href="/static/{digest}/{name}">'
        for name in files.names()
        if name.endswith(".js") and _is_needed_first(name)
    ]
    text = files.get("index.html").body.decode()
    return (
        text.replace("{{static}}", f"/static/{digest}")
        .replace("{{nonce}}", nonce)
        .replace("{{preloads}}", "\n    ".join(preloads))
    )


def _is_needed_first(name: str) -> bool:
    return not name.startswith("app/form/") and name.rpartition("/")[2] not in (
        "form.js",
        "chart.js",
    )
