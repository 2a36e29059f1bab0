"""What a soak refuses to begin, which goals it judges, and how it says what was missed."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from soak import Soak, arguments, report, verdict


class Watch:
    """Stands for a platform that ran ``num_steps`` steps and left keys in Redis."""

    job_id = "job"
    loaded_versions = 2

    def __init__(self, folder: Path, num_steps: int) -> None:
        self.platform = SimpleNamespace(run_dir=lambda job_id: folder)
        if not num_steps:
            return
        steps = [{"kind": "train", "step": n, "wall_s": 1.0} for n in range(num_steps)]
        groups = [{"step": n, "group_ids": [f"job/{n}"]} for n in range(num_steps)]
        for name, lines in (("metrics", steps), ("groups", groups)):
            text = "".join(json.dumps(line) + "\n" for line in lines)
            (folder / f"{name}.jsonl").write_text(text)

    def keys_left(self) -> list[str]:
        return ["troupe:{job}:tickets"]

    def growths(self) -> dict[str, float]:
        return {"redis_keys": 1.0}


def found(folder: Path, state: str, num_steps: int, kills: list[str]) -> dict[str, Any]:
    watch: Any = Watch(folder, num_steps)
    soak = Soak(watch, 60.0, 60.0, kills=kills, quiet_steps=10)
    return report(soak, state, 90.0, 0, 20)


def missed(found: dict[str, Any]) -> set[str]:
    return {each["name"] for each in found["goals"] if not each["holds"]}


def test_report_when_the_job_ended_then_its_keys_are_judged(tmp_path: Path) -> None:
    ended = found(tmp_path, "succeeded", 20, ["trainer"])
    assert missed(ended) == {"redis_keys_left"}
    assert verdict(ended) == ["missed: redis_keys_left is 1, the goal 0"]


def test_report_when_the_job_was_cut_off_then_its_keys_are_not(tmp_path: Path) -> None:
    cut = found(tmp_path, "running", 15, ["trainer"])
    assert missed(cut) == {"succeeded", "steps"}
    said = "\n".join(verdict(cut))
    assert "missed: steps is 15, the goal 20" in said
    assert "cut off while it ran" in said and "Nothing was killed" not in said


def test_report_when_nothing_was_killed_then_says_so_and_gives_no_ratio(tmp_path: Path) -> None:
    short = found(tmp_path, "succeeded", 20, [])
    assert "steps_since_the_first_kill" in missed(short)
    assert "effective_training_ratio" not in {each["name"] for each in short["goals"]}
    assert any("Nothing was killed" in line and "--quiet" in line for line in verdict(short))


def test_report_when_cut_off_before_the_first_step_then_is_one_all_the_same(tmp_path: Path) -> None:
    assert {"succeeded", "steps"} <= missed(found(tmp_path, "running", 0, []))


@pytest.mark.parametrize("name", ["minutes", "steps", "tasks", "every", "quiet"])
@pytest.mark.parametrize("value", ["0", "-3"])
def test_arguments_when_not_positive_then_are_refused(
    name: str, value: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["soak.py", f"--{name}", value])
    with pytest.raises(SystemExit, match="2"):
        arguments()
    assert f"error: --{name} must be more than 0, not {value}" in capsys.readouterr().err
