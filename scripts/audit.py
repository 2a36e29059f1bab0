#!/usr/bin/env python3
"""Audits Troupe's dependencies and workflows (`make audit`); writes to build/audit.

    python scripts/audit.py              # what can't be asked from here is skipped, and says why
    python scripts/audit.py --strict     # as CI and the release do: a skip is a failure

1. known vulnerabilities of every package in every lock of deploy/locks (pip-audit);
2. an SBOM of this virtual environment with licences (CycloneDX) and a list of the licences;
3. the workflows in .github against GitHub's schema of them.

The tools live in .tools/audit, installed with `--require-hashes` from deploy/locks/audit.txt.
Exit 1: a vulnerability, an invalid workflow, a licence that the list below refuses, or a skip with
--strict. A licence that can't be read is no failure: its package is named, for a person to look.
"""

import argparse
import json
import subprocess
import sys
import venv
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

REPO = Path(__file__).resolve().parent.parent
OUT = REPO / "build" / "audit"
TOOLS = REPO / ".tools" / "audit"
LOCKS = REPO / "deploy" / "locks"
SHIPPED = ("router", "env", "torch")
"""Locks of what images hold; the others are for developers alone."""
REFUSED = ("AGPL", "SSPL", "BUSL", "Commons Clause")
"""Licences that what we ship must not come under."""
UNREACHABLE = ("ConnectionError", "Connection", "timed out", "Max retries", "ServiceError", "403")


@dataclass
class Report:
    """What was found, as lines for people."""

    failed: list[str] = field(default_factory=list[str])
    skipped: list[str] = field(default_factory=list[str])


def main() -> int:
    """Audit; 0 when nothing is wrong."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--strict", action="store_true", help="a part that is skipped is a failure")
    options = parser.parse_args()
    OUT.mkdir(parents=True, exist_ok=True)
    report = Report()
    if tools(report):
        for lock in sorted(LOCKS.glob("*.txt")):
            vulnerabilities(lock.stem, report)
        bill = sbom(report)
        licences(bill, report)
        workflows(report)
    for line in report.skipped:
        print(f"audit: skipped: {line}")
    for line in report.failed:
        print(f"audit: FAILED: {line}", file=sys.stderr)
    is_bad = bool(report.failed) or (options.strict and bool(report.skipped))
    print(json.dumps({"failed": len(report.failed), "skipped": len(report.skipped)}))
    return 1 if is_bad else 0


def tools(report: Report) -> bool:
    """Have the tools; False when they can't be installed."""
    lock = (LOCKS / "audit.txt").read_text("utf-8")
    stamp = TOOLS / "installed.txt"
    if stamp.is_file() and stamp.read_text("utf-8") == lock:
        return True
    venv.create(TOOLS, with_pip=True)
    done = program(
        "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check",
        "--require-hashes", "--only-binary", ":all:", "-r", str(LOCKS / "audit.txt"),
        timeout_s=900,
    )  # fmt: skip
    if done.returncode != 0:
        report.skipped.append(f"the tools can't be installed: {last(done.stderr)}")
        return False
    stamp.write_text(lock, encoding="utf-8")
    return True


def vulnerabilities(name: str, report: Report) -> None:
    """Ask for known vulnerabilities of one lock."""
    findings = OUT / f"vulnerabilities-{name}.json"
    findings.unlink(missing_ok=True)  # an earlier answer is none to this question
    done = program(
        "pip-audit", "--requirement", str(LOCKS / f"{name}.txt"), "--require-hashes",
        "--disable-pip", "--progress-spinner", "off", "--format", "json", "--output", str(findings),
        "--timeout", "20", timeout_s=900,
    )  # fmt: skip
    if done.returncode == 0:
        print(f"audit: {name}: no known vulnerability")
    elif any(word in done.stderr for word in UNREACHABLE) and not findings.is_file():
        why = last(done.stderr)
        report.skipped.append(f"vulnerabilities of {name}: the service does not answer: {why}")
    elif not findings.is_file():
        report.failed.append(f"pip-audit of {name}: {last(done.stderr)}")
    else:
        for package in json.loads(findings.read_text("utf-8"))["dependencies"]:
            for vulnerability in package.get("vulns", []):
                fixed = ", ".join(vulnerability["fix_versions"]) or "no release"
                where = f"{package['name']} {package['version']}"
                report.failed.append(f"{name}: {where}: {vulnerability['id']}, mended in {fixed}")


def sbom(report: Report) -> list[dict[str, Any]]:
    """The components of this environment, also as a CycloneDX file."""
    path = OUT / "sbom.cdx.json"
    done = program(
        "cyclonedx-py", "environment", sys.prefix, "--pyproject", str(REPO / "pyproject.toml"),
        "--spec-version", "1.6", "--output-reproducible", "--output-file", str(path), timeout_s=300,
    )  # fmt: skip
    if done.returncode != 0:
        report.failed.append(f"cyclonedx-py: {last(done.stderr)}")
        return []
    components = json.loads(path.read_text("utf-8")).get("components", [])
    print(f"audit: {path.relative_to(REPO)}: {len(components)} components")
    return components


def licences(components: list[dict[str, Any]], report: Report) -> None:
    """Write each component's licences; those of shipped packages must not be refused ones."""
    shipped = {pin.partition("==")[0] for lock in SHIPPED for pin in pins(lock)}
    lines: list[str] = []
    unknown: list[str] = []
    for component in sorted(components, key=lambda c: c["name"].lower()):
        names = sorted({one for entry in component.get("licenses", []) for one in words(entry)})
        name = component["name"]
        is_shipped = name.lower().replace("_", "-").replace(".", "-") in shipped
        if not names:
            unknown.append(f"{name} (shipped)" if is_shipped else name)
        text = "; ".join(names) or "UNKNOWN"
        lines.append(f"{name} {component.get('version', '')}: {text}")
        if is_shipped and any(word in text for word in REFUSED):
            report.failed.append(f"{name} comes under {text}")
    (OUT / "licences.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(f"audit: build/audit/licences.txt: {len(lines)} licences, {len(unknown)} unknown")
    if unknown:
        print(f"audit: look at the licences of {', '.join(unknown)}")


def words(entry: dict[str, Any]) -> Iterator[str]:
    """The names of one licence entry; a long one is a licence's whole text."""
    licence = entry.get("license", {})
    for text in (entry.get("expression"), licence.get("id"), licence.get("name")):
        if text and len(text) < 200:
            yield text


def pins(lock: str) -> Iterator[str]:
    """The `name==version` of each package of a lock."""
    for line in (LOCKS / f"{lock}.txt").read_text("utf-8").splitlines():
        if "==" in line and not line.startswith((" ", "#")):
            yield line.partition(" ")[0]


def workflows(report: Report) -> None:
    """Check the workflows against the schema that GitHub publishes of them."""
    files = sorted(str(path) for path in (REPO / ".github" / "workflows").glob("*.yml"))
    arguments = ["--builtin-schema", "vendor.github-workflows", *files]
    done = program("check-jsonschema", *arguments, timeout_s=120)
    if done.returncode != 0:
        report.failed.append(f"workflows: {(done.stdout + done.stderr).strip()}")
    else:
        print(f"audit: {len(files)} workflows are valid")


def program(name: str, *arguments: str, timeout_s: float) -> subprocess.CompletedProcess[str]:
    """Run one of the tools."""
    argv = [str(TOOLS / "bin" / name), *arguments]
    return subprocess.run(
        argv, cwd=REPO, capture_output=True, text=True, timeout=timeout_s, check=False
    )


def last(text: str) -> str:
    """The last line that says something."""
    return next((line for line in reversed(text.splitlines()) if line.strip()), "it said nothing")


if __name__ == "__main__":
    sys.exit(main())
