"""A program of a model finds neither its env's key nor the address of one."""

from pathlib import Path

import pytest
from tls_world import environment

from troupe.errors import InvalidArgumentError
from troupe.sandbox.sandbox import Limits, Program
from troupe_env.sandbox import open_sandbox
from troupe_env.sandbox.settings import SandboxSettings

LOOK = """
import os
for path in {paths!r}:
    try:
        print("read", open(path).read())
    except OSError as error:
        print("no", type(error).__name__)
found = [os.path.join(at, f) for at, _, files in os.walk("/") for f in files if f == "tls.key"]
print("keys", found)
print("variables", [name for name in os.environ if "TLS" in name or "TROUPE" in name])
"""


def test_key_when_a_sandboxed_program_looks_for_it_then_is_not_there(
    certificates: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = environment(certificates / "env")
    for name, value in files.items():
        monkeypatch.setenv(name, value)
    try:
        sandbox = open_sandbox(SandboxSettings(level="namespaces", workers=1))
    except InvalidArgumentError as error:
        pytest.skip(error.message)
    paths = [*files.values(), f"/proc/1/root{files['TROUPE_TLS_KEY']}"]
    try:
        done = sandbox.run(
            Program(LOOK.format(paths=paths)), Limits(wall_time_s=30.0, cpu_time_s=20.0)
        )
    finally:
        sandbox.close()
    lines = done.stdout.splitlines()
    assert len(lines) == len(paths) + 2, done
    assert all(line.startswith("no ") for line in lines[: len(paths)]), done.stdout
    assert lines[-2:] == ["keys []", "variables []"]
