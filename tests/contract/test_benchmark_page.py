"""benchmarks/README.md lists every benchmark, and says of each run what its JSON line said."""

import json
from pathlib import Path

import pytest

from benchmarks import record

NO_QUICK_FORM = {
    "compare_runs": "draws runs that there are",
    "overhead_sidecar": "a process of router_overhead",
    "peer_own": "two runs of vs_peers",
    "peer_run": "a process of vs_peers",
    "program_answers": "reads a run folder that there is",
    "push_watch": "a process of weight_push",
    "real_model": "reads a run folder that there is",
    "record": "runs the others",
    "recorded_latencies": "makes quantiles of published files",
    "scale_engines": "processes of scale_sim",
    "token_engines": "processes of token_path",
}
"""Modules with a command that are no benchmark."""


def test_page_is_what_the_recorded_runs_make() -> None:
    assert record.PAGE.read_text("utf-8") == record.page(), "python -m benchmarks.record"


def test_every_command_is_a_benchmark_with_a_quick_form_or_known() -> None:
    commands = {
        path.stem for path in record.FOLDER.glob("*.py") if "__main__" in path.read_text("utf-8")
    }
    assert commands - record.benchmarks().keys() == NO_QUICK_FORM.keys()


@pytest.fixture
def own_benchmarks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package of benchmarks with results of its own."""
    folder = tmp_path / "benchmarks"
    (folder / "results").mkdir(parents=True)
    (folder / "__init__.py").touch()
    monkeypatch.setattr(record, "FOLDER", folder)
    monkeypatch.setattr(record, "RUNS", folder / "results" / "runs.jsonl")
    monkeypatch.setattr(record, "PAGE", folder / "README.md")
    return folder


def write(folder: Path, body: str) -> None:
    text = f'"""How fast | it is."""\nimport json, sys\nOPTION = "--quick"\n{body}\n'
    (folder / "speed.py").write_text(text, encoding="utf-8")


def line(value: float) -> str:
    goal = {"name": "ms", "value": value, "goal": 2, "holds": value <= 2}
    return json.dumps(json.dumps({"goals": [goal]}))


def row(folder: Path) -> list[str]:
    text = (folder / "README.md").read_text("utf-8")
    return [cell.strip() for cell in text.splitlines()[-1].strip("|").split("|")]


def test_record_when_run_twice_then_the_newest_full_and_quick_lines_stay(
    own_benchmarks: Path,
) -> None:
    for value, arguments in ((1.5, ["--quick"]), (9.0, []), (3.25, [])):
        write(own_benchmarks, f"print('told')\nprint({line(value)})")
        assert record.main(["speed", *arguments]) == 0
    assert len(record.runs()) == 2
    assert row(own_benchmarks)[:3] == ["`speed`", "How fast / it is", "ms: 2, was 3.25: **missed**"]


def test_record_when_only_quick_then_its_figure_is_not_told(own_benchmarks: Path) -> None:
    write(own_benchmarks, f"print({line(1.5)})")
    record.main(["speed", "--quick"])
    assert row(own_benchmarks)[2:4] == ["ms: 2", "not recorded"]


@pytest.mark.parametrize("body", ["raise SystemExit(3)", "print('no object')", "print([1])"])
def test_record_when_it_fails_or_prints_no_object_then_red_and_shown(
    own_benchmarks: Path, body: str
) -> None:
    write(own_benchmarks, body)
    status = record.main(["speed"])
    assert status == (3 if "3" in body else 1)
    assert ("**exit status 3**" in row(own_benchmarks)[3]) == (status == 3)


def test_record_when_no_benchmark_has_the_name_then_those_that_there_are_are_named() -> None:
    with pytest.raises(SystemExit, match=r"no benchmark 'sped'.*sandbox"):
        record.main(["sped"])
