import gzip
import re
from pathlib import Path

import httpx
import pytest
from fastapi import FastAPI

from troupe.runtime.disk_space import DiskSpace
from troupe_router.rest import problems
from troupe_router.web.files import PageFiles
from troupe_router.web.routes import PAGES, web_routes


def client_of(files: PageFiles | None = None) -> httpx.AsyncClient:
    app = FastAPI()
    problems.install(app, DiskSpace(Path(), needed_bytes=0))
    app.include_router(web_routes(files))
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://page")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "app").mkdir()
    (tmp_path / "index.html").write_text("<html>{{static}} {{nonce}} {{preloads}}</html>")
    (tmp_path / "app" / "main.js").write_text("// " + "words " * 100)
    return tmp_path


@pytest.mark.parametrize("path", [p.replace("{rest:path}", "j-1/episodes/x") for p in PAGES])
async def test_every_page_path_answers_the_same_document(path: str) -> None:
    async with client_of() as client:
        answer = await client.get(path)
    assert answer.status_code == 200
    assert "app/main.js" in answer.text
    assert "{{" not in answer.text


async def test_document_forbids_inline_scripts_eval_other_hosts_and_framing() -> None:
    async with client_of() as client:
        answer = await client.get("/")
    policy = dict(
        part.strip().split(" ", 1) for part in answer.headers["content-security-policy"].split(";")
    )
    assert policy["default-src"] == "'none'"
    assert policy["script-src"] == "'self'"
    assert policy["connect-src"] == "'self'"
    assert policy["frame-ancestors"] == "'none'"
    assert "unsafe" not in answer.headers["content-security-policy"]
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert not re.search(r"<script(?![^>]*src=)", answer.text), "inline scripts would not run"


async def test_document_nonce_is_new_in_each_answer_and_the_one_of_the_policy() -> None:
    async with client_of() as client:
        answers = [await client.get("/") for _ in range(2)]
    nonces = [re.findall(r'nonce="([^"]+)"', answer.text)[0] for answer in answers]
    assert nonces[0] != nonces[1]
    for nonce, answer in zip(nonces, answers, strict=True):
        assert f"'nonce-{nonce}'" in answer.headers["content-security-policy"]
        assert answer.headers["cache-control"] == "no-store"


async def test_static_file_with_the_present_digest_is_kept_for_a_year(folder: Path) -> None:
    files = PageFiles(folder)
    digest = files.refresh()
    async with client_of(files) as client:
        fresh = await client.get(f"/static/{digest}/app/main.js")
        old = await client.get("/static/0123/app/main.js")
    assert "immutable" in fresh.headers["cache-control"]
    assert old.headers["cache-control"] == "no-store"
    assert fresh.headers["content-type"].startswith("text/javascript")
    assert fresh.content == old.content == (folder / "app" / "main.js").read_bytes()


async def test_static_file_is_compressed_only_for_who_takes_it(folder: Path) -> None:
    async with client_of(PageFiles(folder)) as client:
        async with client.stream(
            "GET", "/static/x/app/main.js", headers={"accept-encoding": "gzip"}
        ) as answer:
            packed = b"".join([chunk async for chunk in answer.aiter_raw()])
        plain = await client.get("/static/x/app/main.js", headers={"accept-encoding": "identity"})
    assert answer.headers["content-encoding"] == "gzip"
    assert "content-encoding" not in plain.headers
    assert gzip.decompress(packed) == plain.content
    assert len(packed) < len(plain.content) / 5


@pytest.mark.parametrize(
    "name",
    ["nothing.js", "%2e%2e/routes.py", "app/%2e%2e%2f%2e%2e%2froutes.py", "/etc/passwd", "app"],
)
async def test_static_file_outside_the_page_is_not_found(name: str, folder: Path) -> None:
    (folder.parent / "routes.py").write_text("secret")
    async with client_of(PageFiles(folder)) as client:
        answer = await client.get(f"/static/x/{name}")
    assert answer.status_code == 404
    assert "secret" not in answer.text


def test_every_shipped_file_has_a_media_type() -> None:
    files = PageFiles()
    types = {name: files.get(name).media_type for name in files.names()}
    assert [name for name, kind in types.items() if kind == "application/octet-stream"] == []


def test_page_files_when_one_changes_have_another_digest_and_the_new_text(folder: Path) -> None:
    files = PageFiles(folder)
    before = files.refresh()
    assert files.get("app/main.js").body.startswith(b"// words")
    (folder / "app" / "main.js").write_text("changed")
    assert files.refresh() != before
    assert files.get("app/main.js").body == b"changed"
