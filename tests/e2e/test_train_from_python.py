"""``troupe.train`` as a script calls it: real services, judged by this process."""

import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest

import troupe

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(580)]

ROWS = [{"prompt": f"grid {number}"} for number in range(40)]
AGENTS = {"short": "Be brief.", "long": "Be long."}


def test_train_when_functions_are_closures_then_learns_and_gives_its_results(
    tiny_base: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    judged: list[dict[str, str]] = []

    def reward(row: dict[str, str], texts: dict[str, str]) -> float:
        judged.append(texts)
        return len(texts["long"]) / 20

    run = troupe.train(
        AGENTS,
        ROWS,
        reward,
        model=str(tiny_base),
        runs_dir=tmp_path / "runs",
        steps=12,
        group_size=8,
        max_new_tokens=6,
        learning_rate=1e-2,
        success=0.5,
        quiet=True,
    )
    rewards = [line["reward_by_agent"]["long"] for line in run.metrics if line["kind"] == "train"]
    assert len(rewards) == 12
    assert capfd.readouterr() == ("", "")  # quiet
    assert sum(rewards[-3:]) > 1.3 * sum(rewards[:3])
    assert [line["step"] for line in run.evaluations] == [0, 12]
    held_out = run.episodes(kind="eval", step=12)
    paid = [len(episode.texts["long"]) / 20 for episode in held_out]
    assert [episode.reward for episode in held_out] == pytest.approx(paid, abs=1e-6)
    assert run.evaluations[-1]["reward_mean"] == pytest.approx(sum(paid) / len(paid), abs=1e-6)
    assert judged[0].keys() == AGENTS.keys()
    episodes = run.episodes(kind="train", failed=True)
    assert episodes
    assert not any(episode.is_success for episode in episodes)
    assert "Be long." in str(episodes[0])
    adapter = run.policies["long"].save(tmp_path / "out")
    assert (adapter / "adapter_model.safetensors").is_file()
    assert run.plot().axes[1].get_ylabel() == "reward of a candidate"


def test_train_when_reward_raises_for_one_row_then_the_cause_is_its_exception(
    tiny_base: Path, tmp_path: Path
) -> None:
    def reward(row: dict[str, str], texts: dict[str, str]) -> float:
        return float(row["answer" if row["prompt"] == "grid 0" else "prompt"][-1])

    with pytest.raises(troupe.TroupeError, match="KeyError: 'answer'") as error:
        troupe.train(
            ["a"],
            ROWS,
            reward,
            model=str(tiny_base),
            runs_dir=tmp_path / "runs",
            steps=1,
            tasks_per_step=36,
            max_new_tokens=4,
            quiet=True,
        )
    assert isinstance(error.value.__cause__, KeyError)


SCRIPT = """
    import os, pathlib, signal, sys, troupe
    rows = [{"prompt": f"grid {number}"} for number in range(40)]
    metrics = pathlib.Path("runs/notebook-1/metrics.jsonl")
    interrupts = [signal.SIGINT]
    def reward(row, texts):
        if interrupts and metrics.is_file() and metrics.read_text().count('"train"') >= 2:
            os.kill(os.getpid(), interrupts.pop())
        return len(texts["a"]) / 20
    options = {"model": sys.argv[1], "steps": 20, "max_new_tokens": 4, "success": 0.4}
    if sys.argv[2:]:
        interrupts.clear()
        run = troupe.resume(sys.argv[2], rows, reward, success=0.4)
        print("steps", *(line["step"] for line in run.metrics if line["kind"] == "train"))
    else:
        troupe.train(["a"], rows, reward, **options)
"""


def test_train_when_interrupted_then_ends_in_order_and_resumes(
    tiny_base: Path, tmp_path: Path
) -> None:
    script = tmp_path / "script.py"
    script.write_text(dedent(SCRIPT))
    command = [sys.executable, str(script), str(tiny_base)]
    first = subprocess.run(  # the third step's rewards interrupt it
        command, cwd=tmp_path, capture_output=True, text=True, timeout=280, check=False
    )
    assert "troupe.resume('runs/notebook-1'" in first.stderr
    assert not (tmp_path / "runs" / ".troupe" / "supervisor.json").exists()
    again = subprocess.run(
        [*command, "runs/notebook-1"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert again.returncode == 0, again.stderr
    assert " ".join(["steps", *map(str, range(20))]) in again.stdout
