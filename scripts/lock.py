#!/usr/bin/env python3
"""Writes deploy/locks/*.txt: every package of each image and tool, with the hashes of its files.

    python scripts/lock.py            # after a change of pyproject.toml or constraints.txt

The versions are those of constraints.txt. `pip install --require-hashes -r deploy/locks/env.txt`
takes nothing else, from no index. torch stands in no lock but dev.txt: its CPU and CUDA builds come
from other indexes under one version. Uses `uv` in a virtual environment of its own.
"""

import os
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

REPO = Path(__file__).resolve().parent.parent
LOCKS = REPO / "deploy" / "locks"
TOOL = REPO / ".tools" / "lock"
UV = "uv==0.13.8"
PYTHON_VERSION = "3.11"
EXTRAS = {
    "router": ["router", "tracing"],
    "env": ["env", "tracing"],
    "torch": ["rollout", "trainer", "tracing", "objectstore"],
    "dev": ["dev"],
}
"""Lock to the extras that it holds; `torch` is what rollout and trainer share."""
PINNED = {
    "build": ["setuptools==84.2.1"],
    "audit": ["pip-audit==2.10.1", "cyclonedx-bom==7.5.0", "check-jsonschema==0.39.0"],
    "docs": ["zensical==0.0.73", "mkdocstrings-python==2.0.11", "ruff==0.17.5"],
}
"""Lock to what it holds beside Troupe's own dependencies."""
WITHOUT_TORCH = ("torch", "triton", "nvidia-*", "cuda-*")
HEAD = "# Written by scripts/lock.py from pyproject.toml and constraints.txt; do not edit.\n"


def main() -> int:
    """Write every lock."""
    LOCKS.mkdir(parents=True, exist_ok=True)
    for name, extras in EXTRAS.items():
        arguments = [str(REPO / "pyproject.toml"), "-c", str(REPO / "constraints.txt")]
        arguments += [part for extra in extras for part in ("--extra", extra)]
        write(name, resolve(arguments))
    with tempfile.TemporaryDirectory() as folder:
        for name, pins in PINNED.items():
            source = Path(folder) / f"{name}.in"
            source.write_text("\n".join(pins) + "\n", encoding="utf-8")
            write(name, resolve([str(source)]))
    return 0


def resolve(arguments: list[str]) -> str:
    """The pins and hashes of one lock."""
    argv = [str(uv()), "pip", "compile", "--quiet", "--generate-hashes", "--no-annotate"]
    argv += ["--no-header", "--no-config", "--python-version", PYTHON_VERSION, *arguments]
    done = subprocess.run(argv, cwd=REPO, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"lock: uv failed: {done.stderr.strip()}")
    return done.stdout


def write(name: str, text: str) -> None:
    """Write a lock; `torch` loses what comes from an index of its own."""
    blocks = blocks_of(text)
    if name == "torch":
        blocks = [block for block in blocks if not comes_with_torch(block)]
    path = LOCKS / f"{name}.txt"
    path.write_text(HEAD + "".join(blocks), encoding="utf-8")
    print(f"{path.relative_to(REPO)}: {len(blocks)} packages")


def blocks_of(text: str) -> list[str]:
    """The lines of each package: its pin and its hashes."""
    blocks: list[str] = []
    for line in text.splitlines(keepends=True):
        if line.startswith(" "):
            blocks[-1] += line
        elif "==" in line:
            blocks.append(line)
    return blocks


def comes_with_torch(block: str) -> bool:
    """Whether the package is torch or a library that its CUDA build brings."""
    name = block.partition("==")[0]
    return any(
        name == pattern or (pattern.endswith("*") and name.startswith(pattern[:-1]))
        for pattern in WITHOUT_TORCH
    )


def uv() -> Path:
    """The tool, installed at the first call."""
    program = TOOL / "bin" / "uv"
    if not program.exists():
        venv.create(TOOL, with_pip=True)
        argv = [str(TOOL / "bin" / "python"), "-m", "pip", "install", "--quiet", UV]
        subprocess.run(argv, check=True, env={**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1"})
    return program


if __name__ == "__main__":
    sys.exit(main())
