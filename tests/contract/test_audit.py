"""The audit asks for every lock, takes no old answer, and names what it can't judge."""

import importlib.util
import json
import subprocess
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]


class Tools:
    """Stands for the tools: notes what pip-audit was asked, and answers all with one status."""

    def __init__(self, status: int, stderr: str = "") -> None:
        self.status, self.stderr = status, stderr
        self.locks: list[str] = []

    def __call__(self, *argv: str, timeout_s: float) -> "subprocess.CompletedProcess[str]":
        if argv[0] == "pip-audit":
            self.locks.append(Path(argv[argv.index("--requirement") + 1]).name)
        return subprocess.CompletedProcess(argv, self.status, "", self.stderr)


@pytest.fixture
def audit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """scripts/audit.py, which writes to a folder of its own."""
    spec = importlib.util.spec_from_file_location("audit", ROOT / "scripts" / "audit.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "OUT", tmp_path)
    monkeypatch.setattr(module, "tools", lambda report: True)
    return module


def test_audit_when_run_then_asks_for_every_lock(
    audit: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    tools = Tools(status=1)
    monkeypatch.setattr(audit, "program", tools)
    monkeypatch.setattr("sys.argv", ["audit.py"])
    assert audit.main() == 1
    assert set(tools.locks) == {path.name for path in (ROOT / "deploy" / "locks").glob("*.txt")}


def test_vulnerabilities_when_the_service_is_away_then_an_earlier_answer_does_not_count(
    audit: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "vulnerabilities-env.json").write_text(json.dumps({"dependencies": []}))
    monkeypatch.setattr(audit, "program", Tools(status=1, stderr="ConnectionError: no way"))
    report = audit.Report()
    audit.vulnerabilities("env", report)
    assert report.failed == [] and len(report.skipped) == 1


def test_licences_when_unknown_then_are_named_and_no_failure(
    audit: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    components = [
        {"name": "protobuf", "version": "1"},
        {"name": "a-tool", "version": "1"},
        {"name": "grpcio", "version": "1", "licenses": [{"license": {"id": "Apache-2.0"}}]},
    ]
    report = audit.Report()
    audit.licences(components, report)
    assert report.failed == [] == report.skipped
    said = capsys.readouterr().out
    assert "3 licences, 2 unknown" in said
    assert "look at the licences of a-tool, protobuf (shipped)\n" in said
