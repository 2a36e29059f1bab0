#!/usr/bin/env python3
"""Writes the blocking REST client of the async one.

    python scripts/gen_sync_client.py troupe/clients/rest/client.py

`make generate` runs it and `make check` finds drift. The two differ in these words alone.
"""

import re
import subprocess
import sys
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "troupe/clients/rest/async_client.py"
WORDS = (
    (r'\A"""The async client.*?\n"""\n', '"""{about}\n"""\n'),
    (r"Async client of one router", "Blocking client of one router"),
    (r"\basync (def|with|for)\b", r"\1"),
    (r"\bawait ", ""),
    (r"import asyncio\n", "import time\n"),
    (r"asyncio\.sleep", "time.sleep"),
    (r"\bAsync(Iterator|RestClient|Client|BaseTransport)\b", r"\1"),
    (r"__a(enter|exit)__", r"__\1__"),
    (r"\ba(close|read|iter_bytes|iter_sse)\b", r"\1"),
)
ABOUT = """The blocking client of the REST API. Edit ``async_client.py``, which it is made of.

`make generate` (scripts/gen_sync_client.py) writes this file."""


def blocking(source: str) -> str:
    """The blocking form of ``source``."""
    for pattern, word in WORDS:
        source, count = re.subn(pattern, word.format(about=ABOUT), source, flags=re.DOTALL)
        if not count:
            raise SystemExit(f"gen_sync_client: {SOURCE.name} has no {pattern!r} any more")
    return source


def main() -> None:
    """Write the file that is named, formatted."""
    target = Path(sys.argv[1])
    target.write_text(blocking(SOURCE.read_text("utf-8")), "utf-8")
    ruff = [sys.executable, "-m", "ruff", "--quiet"]
    config = str(SOURCE.parents[3] / "pyproject.toml")
    for command in (["check", "--select", "I", "--fix"], ["format"]):
        subprocess.run([*ruff, *command, "--config", config, str(target)], check=True)


if __name__ == "__main__":
    main()
