"""`troupe data prepare` from the hub: the real client, a hub on loopback, nothing beyond it."""

import hashlib
import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from hub_server import SHA, HubServer, serving

ROWS = [
    {"question": "How many are 3 + 4 apples?", "answer": "so\n#### 7"},
    {"question": "How many are 9 + 9 apples?", "answer": "so\n#### 18"},
]


def parquet(rows: list[dict[str, str]], path: Path) -> bytes:
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    pq.write_table(pa.Table.from_pylist(rows), path)
    return path.read_bytes()


def prepare(endpoint: str, folder: Path, *more: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "HF_ENDPOINT": endpoint, "HF_HOME": str(folder / "hf")}
    env |= {"HF_HUB_DISABLE_TELEMETRY": "1", "NO_PROXY": "*", "HF_TOKEN": ""}
    command = ("data", "prepare", "gsm8k", "--source", "hub", "--out", str(folder / "data"))
    return subprocess.run(
        [sys.executable, "-m", "troupe.cli", *command, *more],
        capture_output=True, text=True, timeout=100, check=False, env=env,
    )  # fmt: skip


def test_prepare_when_the_hub_has_the_files_then_revision_and_checksums_are_in_the_manifest(
    tmp_path: Path,
):
    pytest.importorskip("huggingface_hub")
    content = parquet(ROWS, tmp_path / "rows.parquet")
    files = {
        "main/test-00000-of-00001.parquet": content,
        "socratic/test-00000-of-00001.parquet": b"not this one",
        "README.md": b"nor this",
    }
    with serving("openai/gsm8k", files) as hub:
        done = prepare(hub.url, tmp_path, "--split", "test", "--revision", "v1", "--json")
        assert done.returncode == 0, done.stderr
        manifest = json.loads(done.stdout)
        assert manifest["splits"]["test"]["revision"] == SHA
        assert manifest["hub_id"] == "openai/gsm8k"
        record = manifest["splits"]["test"]
        assert record["inputs"] == [
            {"name": "test-00000-of-00001.parquet", "sha256": hashlib.sha256(content).hexdigest()}
        ]
        written = (tmp_path / "data/gsm8k/test.jsonl").read_bytes()
        assert record["sha256"] == hashlib.sha256(written).hexdigest()
        assert [json.loads(line)["answer"] for line in written.splitlines()] == ["7", "18"]
        assert not [path for path in fetched(hub) if "socratic" in path or "README" in path]
        assert_second_time_fetches_nothing(hub, tmp_path, written)


def assert_second_time_fetches_nothing(hub: HubServer, folder: Path, written: bytes) -> None:
    """An unchanged etag: the file that is here serves again, with equal bytes."""
    hub.asked.clear()
    again = prepare(hub.url, folder, "--split", "test", "--revision", "v1")
    assert again.returncode == 0, again.stderr
    assert fetched(hub) == []
    assert (folder / "data/gsm8k/test.jsonl").read_bytes() == written


def fetched(hub: HubServer) -> list[str]:
    return [line for line in hub.asked if line.startswith("GET /datasets/")]


def test_prepare_when_the_revision_is_unknown_then_says_so_and_leaves_nothing(tmp_path: Path):
    pytest.importorskip("huggingface_hub")
    with serving("openai/gsm8k", {}) as hub:
        done = prepare(hub.url, tmp_path, "--revision", "no-such")
    assert done.returncode == 1
    assert "error: openai/gsm8k could not be downloaded" in done.stderr
    assert "--source <folder>" in done.stderr
    assert not (tmp_path / "data").exists()


def test_prepare_when_there_is_no_network_then_names_the_files_to_fetch_elsewhere(tmp_path: Path):
    pytest.importorskip("huggingface_hub")
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))  # bound and not listening: connections are refused
        port = unused.getsockname()[1]
        done = prepare(f"http://127.0.0.1:{port}", tmp_path, "--split", "test")
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert "main/test-*" in done.stderr
    assert "--source <folder>" in done.stderr
