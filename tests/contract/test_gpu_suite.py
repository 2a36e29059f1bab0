"""The suite for a day with a GPU: parts end alone, are not done twice, and say what they found."""

import json
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from benchmarks.gpu_suite import __main__ as suite
from benchmarks.gpu_suite.parts import PARTS, Part
from benchmarks.gpu_suite.phases import summary
from benchmarks.gpu_suite.pushes import with_extrapolation
from benchmarks.gpu_suite.steps import CASES, goals_of
from benchmarks.random_model import save_random_model
from benchmarks.rollout_fleet import TinyTrainer
from troupe.spec.memory import decoder_shape
from troupe.spec.policy import LoraSpec, PolicySpec

GOOD = """
import json, pathlib, sys
seen = pathlib.Path(sys.argv[1])
seen.write_text(seen.read_text() + "x" if seen.exists() else "x")
print("working")
print(json.dumps({"figure": 7, "goals": [{"name": "a", "value": 7, "goal": 5, "holds": True}]}))
"""
BAD = "print('before'); raise SystemExit('no such kernel')"
SKIPS = "import json; print(json.dumps({'skipped': 'no SGLang', 'goals': []}))"
HANGS = """
import pathlib, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
pathlib.Path(sys.argv[1]).write_text(str(child.pid))
time.sleep(600)
"""


@pytest.fixture
def parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Part]:
    """Four parts that do, fail, skip and hang."""
    for name, text in (("good", GOOD), ("bad", BAD), ("skips", SKIPS), ("hangs", HANGS)):
        (tmp_path / f"part_{name}.py").write_text(text)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))

    def part(name: str, limit_s: float = 60.0) -> Part:
        told = str(tmp_path / f"seen_{name}")
        return Part(name, "", f"part_{name}", 0.0, limit_s, lambda _: [told], has_limit=False)

    made = [part("good"), part("bad"), part("skips"), part("hangs", limit_s=3.0)]
    monkeypatch.setattr(suite, "PARTS", made)
    return made


def run_suite(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    *more: str,
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The last line, and all lines of the file."""
    path = tmp_path / "lines.jsonl"
    arguments = ["--device", "cpu", "--quick", "--results", str(path), *more]
    monkeypatch.setattr(sys, "argv", ["gpu_suite", *arguments])
    suite.main()
    last = json.loads(capsys.readouterr().out.strip().splitlines()[-1])
    return last, [json.loads(line) for line in path.read_text().splitlines()]


def test_suite_when_parts_fail_or_hang_then_the_others_are_done_and_it_says_each(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    parts: list[Part],
) -> None:
    last, lines = run_suite(tmp_path, monkeypatch, capsys)
    states = {"good": "done", "bad": "failed", "skips": "skipped", "hangs": "out of time"}
    assert last["parts"] == states
    reasons = {"bad": "no such kernel", "skips": "no SGLang", "hangs": "not ended after 3 s"}
    assert last["why"] == reasons
    assert [goal["name"] for goal in last["goals"]] == ["good: a"]
    by_name = {line["part"]: line for line in lines}
    assert by_name["good"]["result"] == {"figure": 7}
    assert "no such kernel" in by_name["bad"]["tail"][-1]
    assert all({"device", "commit", "date", "key"} <= line.keys() for line in lines)
    child = int((tmp_path / "seen_hangs").read_text())
    deadline = time.monotonic() + 20
    while psutil.pid_exists(child) and psutil.Process(child).status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < deadline, "what the part started outlives it"
        time.sleep(0.05)


def test_suite_when_called_again_then_only_what_was_not_done_is_tried_unless_asked(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    parts: list[Part],
) -> None:
    only = ("--only", "good,bad")
    run_suite(tmp_path, monkeypatch, capsys, *only)
    last, lines = run_suite(tmp_path, monkeypatch, capsys, *only)
    assert last["parts"] == {"good": "done before", "bad": "failed"}
    assert [goal["holds"] for goal in last["goals"]] == [True]
    assert len(lines) == 3
    run_suite(tmp_path, monkeypatch, capsys, *only, "--again", "good")
    assert (tmp_path / "seen_good").read_text() == "xx"
    with pytest.raises(SystemExit):
        run_suite(tmp_path, monkeypatch, capsys, "--only", "nothing")
    assert "no part nothing" in capsys.readouterr().err


def test_part_when_too_little_time_is_left_then_it_is_not_begun() -> None:
    asked = suite.Suite("cuda", False, "", "math", 1, 1)
    part = Part("late", "", "none", 60.0, 600.0, lambda _: [])
    line = suite.attempt(part, asked, 5.0, anew=False)
    assert line["status"] == "no time"
    assert "takes 60 s" in line["why"]


def test_minutes_when_few_then_each_part_keeps_what_later_ones_need_at_the_least() -> None:
    def part(name: str, least_s: float, limit_s: float) -> Part:
        return Part(name, "", "none", least_s, limit_s, lambda _: [])

    first, second, third = todo = part("a", 60, 900), part("b", 180, 1200), part("c", 240, 3600)
    assert suite.seconds_for(first, todo, None, 0.0) == 900
    assert suite.seconds_for(first, todo, 900.0, 0.0) == 900 - 180 - 240
    assert suite.seconds_for(first, todo, 300.0, 0.0) == 60
    assert suite.seconds_for(second, todo, 900.0, 480.0) == 180
    assert suite.seconds_for(third, todo, 900.0, 660.0) == 240
    assert suite.seconds_for(third, todo, 900.0, 850.0) == 50
    spent = 0.0
    for each in PARTS:  # a quarter of an hour is enough for all, if each takes what it may
        given = suite.seconds_for(each, PARTS, 900.0, spent)
        assert given >= each.least_s, each.name
        spent += given


def test_pushes_when_extrapolated_then_by_the_line_through_two_sizes() -> None:
    def row(kind: str, via: str, size: int, p50_s: float) -> dict[str, Any]:
        return {"kind": kind, "via": via, "bytes": size, "p50_s": p50_s}

    rows = [
        row("lora", "grpc", 10**8, 0.3),
        row("full", "grpc", 11 * 10**8, 2.3),
        row("full", "distributed", 11 * 10**8, 0.8),
        {"kind": "lora", "via": "store", "error": "no store"},
    ]
    found = with_extrapolation({"rows": rows, "goals": []})
    assert found["per_gb"]["transports"] == {
        "grpc": {"s_per_gb": 2.0, "fixed_s": 0.1},
        "distributed": {"s_per_gb": 0.5, "fixed_s": 0.25},
    }
    shape = decoder_shape("Qwen3-8B")
    assert shape is not None
    size = shape.num_parameters() * 2 / 1e9
    by_key = {
        (r["via"], r["replicas"]): r["seconds"]
        for r in found["per_gb"]["extrapolated"]
        if (r["model"], r["kind"]) == ("Qwen3-8B", "full")
    }
    assert by_key["grpc", 8] == pytest.approx(0.1 + 2.0 * size * 8, abs=0.01)
    assert by_key["distributed", 8] == pytest.approx(0.25 + 0.5 * size, abs=0.01)
    [full, lora] = found["goals"]
    assert "(distributed)" in full["name"] and not full["holds"]
    assert lora["value"] < 1.0 and lora["holds"]
    noise = [row("lora", "grpc", 2 * 10**5, 0.3), row("full", "grpc", 4 * 10**5, 0.2)]
    assert with_extrapolation({"rows": noise, "goals": []})["goals"] == []


def test_phases_when_summed_then_idle_is_what_neither_drew_nor_learnt() -> None:
    step = {
        "wall_s": 100.0,
        "phases": {"generate": 50.0, "learn": 30.0, "publish": 5.0},
        "replica_idle": {"r0": 0.1, "r1": 0.3},
        "peak_memory_bytes": 2 * 10**9,
        "mfu": None,
        "waited_s": 51.0,
    }
    apart = summary([step], shared=False)
    assert apart["idle"] == {"servers": 0.6, "trainer": 0.7}
    assert summary([step], shared=True)["idle"] == {"device": 0.3}
    assert apart["peak_memory_gb"] == 2.0
    assert "mfu" not in apart and apart["waited_s"] == 51.0


def test_steps_when_some_fail_then_goals_are_of_the_others() -> None:
    rows = [
        {"case": "m lora segments", "tokens_per_s": 300, "mfu": 0.2, "off": -0.05},
        {"case": "m lora mask", "tokens_per_s": 200, "mfu": 0.1, "off": 0.5},
        {"case": "m full segments", "tokens_per_s": 100, "mfu": 0.4, "off": 0.12},
        {"case": "m lora segments compiled", "tokens_per_s": 330, "mfu": 0.3, "off": 0.0},
        {"case": "large", "error": "out of memory"},
    ]
    by_name = {goal["name"]: (goal["value"], goal["holds"]) for goal in goals_of(rows)}
    assert by_name == {
        "cases that failed": (1, False),
        "largest mfu of full weights": (0.4, True),
        "predicted memory off by a share": (0.12, False),
        "segments over mask, m lora": (1.5, True),
        "compiled over plain, tokens/s": (1.1, True),
    }


def test_table_when_read_then_each_part_is_a_module_and_each_shape_is_known() -> None:
    root = Path(suite.ROOT)
    for part in PARTS:
        assert (root / f"{part.module.replace('.', '/')}.py").is_file()
        assert part.least_s <= part.limit_s
    assert len({part.name for part in PARTS}) == len(PARTS)
    assert all(decoder_shape(case.size) for case in CASES)
    assert len({case.name for case in CASES}) == len(CASES)


def test_judge_when_its_base_is_bfloat16_then_it_computes_as_the_trainer_does(
    tmp_path: Path,
) -> None:
    model = save_random_model(tmp_path / "model", sharpness=1.0)
    spec = PolicySpec(model=str(model), dtype="bfloat16", train=LoraSpec(rank=4, alpha=8))
    trainer = TinyTrainer("p", spec, tmp_path / "out")
    trainer.learn(0, size=0.05)
    found = trainer.logprobs([5, 9, 12], [7, 30, 41], 1.0).tolist()
    assert found == pytest.approx(trainer.model.score([5, 9, 12, 7, 30, 41])[2:], abs=1e-3)
