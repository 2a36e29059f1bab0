"""What the Dockerfile copies is let through by .dockerignore, and is there."""

import re
from fnmatch import fnmatch
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_dockerfile_when_it_copies_from_the_context_then_each_path_is_let_through() -> None:
    text = (ROOT / "deploy/docker/Dockerfile").read_text("utf-8")
    lines = (ROOT / ".dockerignore").read_text("utf-8").splitlines()
    allowed = [line.removeprefix("!") for line in lines if line.startswith("!")]
    copied = {
        path
        for line in re.findall(r"^COPY (?!--from)(.+)$", text, re.MULTILINE)
        for path in line.split()[:-1]
    }
    assert lines[0] == "*", "an allow-list is what this test reads"
    assert {"troupe", "services"} <= copied
    missing = {p for p in copied if not any(p == a or fnmatch(p, f"{a}/*") for a in allowed)}
    assert not missing, f".dockerignore keeps these from docker build: {sorted(missing)}"
    assert all((ROOT / path).exists() for path in copied)
