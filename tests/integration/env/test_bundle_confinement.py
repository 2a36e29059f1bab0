"""The confinement of a bundle's process as older kernels hold it: Landlock with fewer rights."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from hostile_bundle import ACT, ERRORS, outside

from troupe_env.bundles import landlock

CONFINED = """
import json, os, sys
from troupe_env.bundles import landlock
from troupe_env.bundles.confinement import confine, refuse_names
version, folder, actions = json.loads(sys.stdin.readline())
landlock.abi = lambda: version
os.chdir(folder)
readable = [folder, sys.prefix, sys.base_prefix]
confine(readable, os.path.dirname(folder) + "/s", memory_bytes=2 << 30)
refuse_names()
for action in actions:
    try:
        said = str(eval(action))
    except BaseException as error:
        said = type(error).__name__ + ": " + str(error)
    print(json.dumps(said), flush=True)
"""


@pytest.mark.parametrize("version", [2, 5])  # without truncate (Linux 6.1), without scopes (6.11)
def test_bundle_when_landlock_is_older_then_every_way_out_is_refused_all_the_same(
    version: int, tmp_path: Path
) -> None:
    if landlock.abi() < version:
        pytest.skip(f"this kernel's Landlock is older than version {version}")
    folder = tmp_path / "bundle"
    folder.mkdir()
    (tmp_path / "s").mkdir()
    (folder / "my_task.py").write_text("import os")
    with outside(tmp_path) as others:
        before = others.seen()
        actions = [act.format(**others.fields, port=1) for act in ACT.values()]
        done = subprocess.run(
            [sys.executable, "-B", "-c", CONFINED],
            input=json.dumps([version, str(folder), actions]) + "\n",
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
        answers = [json.loads(line) for line in done.stdout.splitlines()]
        found = dict(zip(ACT, answers, strict=True))
        assert {name: text for name, text in found.items() if not text.startswith(ERRORS)} == {}
        assert others.seen() == before
    assert (folder / "my_task.py").read_text() == "import os"
