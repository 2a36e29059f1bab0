#!/usr/bin/env python3
"""Rebuilds the libraries of the router's web page from pinned packages.

    python3.11 scripts/vendor_web.py            # writes the router's web/page/vendor
    python3.11 scripts/vendor_web.py --check    # compares that folder with a fresh bundle

Owns the vendor folder: nothing else writes there. `scripts/vendor_web/` names the packages, with
the digest of each in package-lock.json, and what of them the page uses. Needs Node.js with npm
(for developers only: the bundle is committed, and the page has no build step). Prints one line
that says why, and exits 1, where it cannot be made or differs.
"""

import argparse
import hashlib
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

REPO = Path(__file__).resolve().parent.parent
SOURCE = REPO / "scripts" / "vendor_web"
VENDOR = REPO / "services" / "router" / "web" / "page" / "vendor"
MAX_BYTES = 1_500_000
TIMEOUT_S = 600
ENTRIES = ("ui.js", "form.js", "chart.js", "ui.css")
ABSENT = (
    "@mantine/dates",
    "@rjsf/validator-ajv8",
    "dayjs",
    "dayjs/plugin/customParseFormat",
    "markdown-to-jsx/react",
)
LICENSE_NAMES = ("LICENSE", "LICENSE.md", "LICENSE.txt", "LICENCE", "license", "UNLICENSE")


class VendorError(Exception):
    """Why there is no bundle, in one line."""


def main() -> int:
    """Write or check the vendor folder; 0 when it is as it must be."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--check", action="store_true", help="change nothing; say what differs")
    options = parser.parse_args()
    try:
        with tempfile.TemporaryDirectory() as temporary:
            fresh = build(Path(temporary))
            if options.check:
                compare(fresh, VENDOR)
            else:
                shutil.rmtree(VENDOR, ignore_errors=True)
                shutil.copytree(fresh, VENDOR)
    except VendorError as error:
        print(f"vendor_web: {error}", file=sys.stderr)
        return 1
    size = sum(path.stat().st_size for path in VENDOR.iterdir())
    print(f"vendor_web: {size / 1e6:.2f} MB in {VENDOR.relative_to(REPO)}")
    return 0


def build(work: Path) -> Path:
    """A fresh vendor folder below ``work``."""
    for name in ("package.json", "package-lock.json", *ENTRIES, "absent.js"):
        shutil.copy(SOURCE / name, work / name)
    run(["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"], work)
    out = work / "out"
    aliases = [f"--alias:{name}=./absent.js" for name in ABSENT]
    run(
        [
            *("node", "node_modules/esbuild/bin/esbuild", *ENTRIES, "--bundle", "--splitting"),
            *("--format=esm", "--minify", "--target=es2022", "--legal-comments=none"),
            *("--define:process.env.NODE_ENV='production'", "--loader:.woff2=file"),
            *("--asset-names=[name]", "--chunk-names=shared-[hash]", "--metafile=meta.json"),
            *("--log-level=error", *aliases, f"--outdir={out}"),
        ],
        work,
    )
    used = packages(json.loads((work / "meta.json").read_text(encoding="utf-8")))
    (out / "LICENSES.txt").write_text(licenses(work, used), encoding="utf-8")
    size = sum(path.stat().st_size for path in out.iterdir())
    if size > MAX_BYTES:
        raise VendorError(f"{size} bytes are more than {MAX_BYTES}; import less in {SOURCE.name}/")
    manifest = {
        "packages": {name: package(work, name)["version"] for name in used},
        "sha256": {path.name: digest(path) for path in sorted(out.iterdir())},
    }
    (out / "vendor.json").write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")
    return out


def packages(meta: dict[str, Any]) -> list[str]:
    """Names of the packages that a bundle holds code of."""
    names: set[str] = set()
    for output in meta["outputs"].values():
        for source in output["inputs"]:
            _, has, rest = source.rpartition("node_modules/")
            parts = rest.split("/")
            if has:
                names.add("/".join(parts[: 2 if rest.startswith("@") else 1]))
    return sorted(names)


def licenses(work: Path, names: list[str]) -> str:
    """The licence of each package, in full where it ships one."""
    parts: list[str] = []
    for name in names:
        about = package(work, name)
        folder = work / "node_modules" / name
        files = [folder / file for file in LICENSE_NAMES if (folder / file).is_file()]
        if not about.get("license"):
            raise VendorError(f"{name} names no licence; look at it before it is shipped")
        body = files[0].read_text(encoding="utf-8") if files else f"Author: {author(about)}\n"
        parts.append(f"{name} {about['version']} ({about['license']})\n\n{body.strip()}\n")
    return f"\n{'-' * 80}\n\n".join(parts)


def package(work: Path, name: str) -> dict[str, Any]:
    """What an installed package says of itself."""
    path = work / "node_modules" / name / "package.json"
    return json.loads(path.read_text(encoding="utf-8"))


def author(about: dict[str, Any]) -> str:
    """Who wrote a package."""
    author_field = about.get("author") or "its contributors"
    return str(author_field.get("name")) if isinstance(author_field, dict) else str(author_field)


def compare(fresh: Path, kept: Path) -> None:
    """Raise VendorError when a file of the two folders differs."""
    names = {path.name for folder in (fresh, kept) if folder.is_dir() for path in folder.iterdir()}
    wrong = [name for name in sorted(names) if not is_same(fresh / name, kept / name)]
    if wrong:
        raise VendorError(f"{', '.join(wrong)} differ; run scripts/{Path(__file__).name}")


def is_same(first: Path, other: Path) -> bool:
    """Whether two files have the same bytes."""
    return first.is_file() and other.is_file() and digest(first) == digest(other)


def digest(path: Path) -> str:
    """Hex SHA-256 of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def run(command: list[str], where: Path) -> None:
    """Run a program; its last words are the error when it fails."""
    try:
        done = subprocess.run(
            command, cwd=where, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        reason = f"{command[0]} cannot run ({error}); Node.js 20 with npm is needed"
        raise VendorError(reason) from error
    if done.returncode:
        raise VendorError(f"{' '.join(command[:3])} failed: {done.stderr.strip()[-2000:]}")


if __name__ == "__main__":
    sys.exit(main())
