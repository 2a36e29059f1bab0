"""A bundle's packages: real pip, a package index on loopback, wheels with hashes."""

import base64
import hashlib
import http.server
import io
import threading
import zipfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from troupe.api.env.v1 import env_pb2 as pb
from troupe.bundles.archive import Bundle, bundle_of
from troupe.errors import InvalidArgumentError
from troupe_env.bundles import landlock
from troupe_env.bundles.packages import install
from troupe_env.bundles.processes import BundleProcesses
from troupe_env.settings import EnvSettings

TASK = """
from tiny_words import WORD
from troupe import SimpleTask

class Say(SimpleTask):
    def draw(self, rng):
        return rng.random()

    def observe(self, state, agent):
        return WORD

    def step(self, state, agent, action):
        return self.transition(state, 1.0, done=True)
"""


class QuietFiles(http.server.SimpleHTTPRequestHandler):
    """Files of a folder, without a log."""

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


def wheel(word: str) -> bytes:
    """A wheel of one module, as an index has it."""
    info = "tiny_words-1.0.dist-info"
    files = {
        "tiny_words.py": f"WORD = {word!r}\n",
        f"{info}/METADATA": "Metadata-Version: 2.1\nName: tiny-words\nVersion: 1.0\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\n"
        "Tag: py3-none-any\n",
    }
    digests = {
        name: base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).decode().rstrip("=")
        for name, text in files.items()
    }
    lines = [f"{name},sha256={digests[name]},{len(text)}" for name, text in files.items()]
    files[f"{info}/RECORD"] = "\n".join([*lines, f"{info}/RECORD,,", ""])
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w") as archive:
        for name, text in files.items():
            archive.writestr(zipfile.ZipInfo(name), text)  # the same bytes at any time
    return target.getvalue()


@pytest.fixture
def index(tmp_path: Path) -> Iterator[str]:
    """A package index (PEP 503) with tiny-words 1.0."""
    folder = tmp_path / "index" / "tiny-words"
    folder.mkdir(parents=True)
    name = "tiny_words-1.0-py3-none-any.whl"
    (folder / name).write_bytes(wheel("from the index"))
    (folder / "index.html").write_text(f'<a href="{name}">{name}</a>')
    handler = partial(QuietFiles, directory=str(tmp_path / "index"))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


def bundle(content: bytes) -> Bundle:
    lock = f"tiny-words==1.0 --hash=sha256:{hashlib.sha256(content).hexdigest()}\n"
    return bundle_of({"my_task.py": TASK.encode(), "requirements.lock": lock.encode()})


@pytest.mark.skipif(not landlock.abi(), reason="this kernel has no Landlock")
async def test_package_when_locked_then_is_installed_beside_the_bundle_and_imported(
    index: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TROUPE_BUNDLE_INDEX", index)
    one = bundle(wheel("from the index"))

    async def fetch(digest: str) -> Bundle:
        return one

    processes = BundleProcesses(EnvSettings(router="127.0.0.1:1"), fetch)
    request = pb.ResetRequest(
        environment=pb.EnvironmentRef(name="my_task.py:Say", bundle_digest=one.digest),
        task=pb.TaskRef(split="train", index=0),
        observe_agents=["agent"],
    )
    answer = await processes.call(
        one.digest, "Reset", lambda stub, left_s: stub.Reset(request, timeout=left_s), 60
    )
    assert answer.observations["agent"].messages[0].content == "from the index"
    await processes.close()


async def test_package_when_the_index_has_another_content_then_is_refused(
    index: str, tmp_path: Path
) -> None:
    (tmp_path / "work").mkdir()
    with pytest.raises(InvalidArgumentError, match="HASHES"):
        await install(bundle(wheel("another")), tmp_path / "work" / "packages", index=index)


async def test_package_when_there_is_only_source_then_nothing_is_built(
    index: str, tmp_path: Path
) -> None:
    folder = tmp_path / "index" / "tiny-words"
    (folder / "tiny_words-1.0.tar.gz").write_bytes(b"a setup.py would run")
    (folder / "index.html").write_text('<a href="tiny_words-1.0.tar.gz">tiny_words-1.0.tar.gz</a>')
    (tmp_path / "work").mkdir()
    with pytest.raises(InvalidArgumentError, match="No matching distribution"):
        await install(bundle(b"a setup.py would run"), tmp_path / "work/packages", index=index)
