"""The page has no build step: only these tests join its modules before a browser does."""

import hashlib
import json
import re
from pathlib import Path

import pytest

from troupe_router.web.files import PAGE

VENDOR = PAGE / "vendor"
MODULES = sorted((PAGE / "app").rglob("*.js"))
MAX_VENDOR_BYTES = 1_500_000
_IMPORT = re.compile(r'import\s*\{([^}]*)\}\s*from\s*"([^"]+)"|import\("([^"]+)"\)')
_DECLARED = re.compile(r"export (?:async )?(?:const|function|class|let) (\w+)")
_DESTRUCTURED = re.compile(r"export const \{([^}]*)\}")
_LISTED = re.compile(r"export\s*\{([^}]*)\}")


def exports(path: Path) -> set[str]:
    text = path.read_text(encoding="utf-8")
    listed = [name for found in _LISTED.findall(text) for name in found.split(",")]
    taken = [name for found in _DESTRUCTURED.findall(text) for name in found.split(",")]
    names = [re.split(r"\s+as\s+", name.strip())[-1] for name in (*listed, *taken)]
    return {*_DECLARED.findall(text), *names}


@pytest.mark.parametrize("module", MODULES, ids=lambda path: str(path.relative_to(PAGE)))
def test_module_imports_only_what_is_there_and_uses_it(module: Path) -> None:
    text = module.read_text(encoding="utf-8")
    for names, where, lazily in _IMPORT.findall(text):
        target = (module.parent / (where or lazily)).resolve()
        assert target.is_relative_to(PAGE), "the page imports nothing from elsewhere"
        assert target.is_file(), f"{where or lazily} is not there"
        for name in filter(None, (name.strip() for name in names.split(","))):
            assert name in exports(target), f"{where} does not export {name}"
            assert len(re.findall(rf"\b{name}\b", text)) > 1, f"{name} is imported and not used"


@pytest.mark.parametrize("module", MODULES, ids=lambda path: str(path.relative_to(PAGE)))
def test_module_never_turns_text_into_markup_or_code(module: Path) -> None:
    text = module.read_text(encoding="utf-8")
    ways = (
        r"innerHTML|outerHTML|insertAdjacentHTML|dangerouslySetInnerHTML|document\.write"
        r"|\beval\(|new Function|javascript:|srcdoc"
    )
    assert not re.search(ways, text)


@pytest.mark.parametrize("path", sorted(PAGE.rglob("*")), ids=lambda p: p.name)
def test_page_file_names_no_other_host(path: Path) -> None:
    if path.suffix not in (".js", ".css", ".html") or path.parent == VENDOR:
        return
    found = re.findall(r"https?://[^\s\"'`)]+", path.read_text(encoding="utf-8"))
    assert found == []


def test_vendored_files_are_those_of_the_manifest() -> None:
    manifest = json.loads((VENDOR / "vendor.json").read_text(encoding="utf-8"))
    found = {
        path.name: path.read_bytes() for path in VENDOR.iterdir() if path.name != "vendor.json"
    }
    assert {n: hashlib.sha256(b).hexdigest() for n, b in found.items()} == manifest["sha256"]
    assert sum(map(len, found.values())) < MAX_VENDOR_BYTES
    texts = [text.decode() for name, text in found.items() if name.endswith(".js")]
    assert not any(re.search(r"\beval\(|new Function\(", text) for text in texts)


def test_vendored_packages_are_pinned_and_licensed() -> None:
    manifest = json.loads((VENDOR / "vendor.json").read_text(encoding="utf-8"))
    licenses = (VENDOR / "LICENSES.txt").read_text(encoding="utf-8")
    for name, version in manifest["packages"].items():
        assert f"{name} {version} (" in licenses
    folder = Path(__file__).parents[3] / "scripts" / "vendor_web"
    wanted = json.loads((folder / "package.json").read_text(encoding="utf-8"))
    for name, version in wanted["dependencies"].items():
        assert re.fullmatch(r"\d+\.\d+\.\d+", version)
        assert manifest["packages"].get(name, version) == version
    lock = json.loads((folder / "package-lock.json").read_text(encoding="utf-8"))
    for path, package in lock["packages"].items():
        assert not path or package["integrity"].startswith("sha512-")
        assert "resolved" not in package, "the lock names no registry"
