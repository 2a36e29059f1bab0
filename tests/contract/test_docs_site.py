"""The site of the documentation: its navigation, and what its build refuses."""

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from scripts.build_docs import publish, resources

ROOT = Path(__file__).parents[2]


def pages_of(entry: Any) -> list[str]:
    if isinstance(entry, str):
        return [entry]
    entries = entry if isinstance(entry, list) else entry.values()
    return [page for each in entries for page in pages_of(each)]


def test_navigation_when_read_then_holds_every_page_of_docs_once() -> None:
    site = tomllib.loads((ROOT / "zensical.toml").read_text("utf-8"))
    listed = pages_of(site["project"]["nav"])
    pages = [str(page.relative_to(ROOT)) for page in (ROOT / "docs").rglob("*.md")]
    assert sorted(page for page in listed if page.startswith("docs/")) == sorted(pages)


def test_navigation_when_read_then_names_files_that_are_there() -> None:
    site = tomllib.loads((ROOT / "zensical.toml").read_text("utf-8"))
    missing = [page for page in pages_of(site["project"]["nav"]) if not (ROOT / page).is_file()]
    assert missing == []


@pytest.mark.parametrize(
    "html",
    [
        '<script src="https://unpkg.com/a.js"></script>',
        '<img src="//host/a.png">',
        '<link rel="stylesheet" href="http://host/a.css">',
        '<pre class="mermaid"><code>graph</code></pre>',
    ],
)
def test_page_when_it_fetches_from_another_host_then_is_refused(tmp_path: Path, html: str) -> None:
    (tmp_path / "page.html").write_text(html, encoding="utf-8")
    assert len(resources(tmp_path / "page.html")) == 1


def test_page_when_it_only_links_to_another_host_then_is_taken(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text('<a href="https://host/">there</a><img src="../a.svg">', encoding="utf-8")
    assert resources(page) == []


def test_publish_when_there_are_versions_then_the_index_leads_to_the_newest_release(
    tmp_path: Path,
) -> None:
    (tmp_path / "built").mkdir()
    (tmp_path / "built" / "index.html").write_text("page", encoding="utf-8")
    for version in ("0.9", "latest", "0.10", "0.9"):
        publish(tmp_path / "built", tmp_path / "site", version)
    versions = re.findall(r'"version": "(.*?)"', (tmp_path / "site" / "versions.json").read_text())
    assert versions == ["0.10", "0.9", "latest"]
    assert "url=0.10/index.html" in (tmp_path / "site" / "index.html").read_text()
