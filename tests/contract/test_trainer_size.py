"""The quick form of the count of real size: the same code, with every goal in its last line."""

import json

import pytest

from benchmarks.trainer_size import __main__ as trainer_size

NAMES = {
    "tokens of a step through 4 ranks": 1_000_000,
    "bytes of a state restored by 4 ranks": 10**7,
    "host memory of a rank beside its part, bytes": 2 * 10**9,
    "largest predicted share of a GPU": 0.9,
    "jobs that do not fit their GPU": 0,
    "attended over visible cells, blocks above 512 tokens": 1.2,
    "attended over visible cells, all draws": 1.2,
    "micro-batches above their budget": 0,
    "layers gathered at a moment": 2,
}


@pytest.mark.timeout(400)
def test_goals_when_the_quick_form_runs_then_the_last_line_says_that_each_holds(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["trainer_size", "--quick"])
    monkeypatch.setattr(trainer_size, "clean_up_on_sigterm", lambda: None)
    trainer_size.main()
    result = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert {goal["name"]: goal["goal"] for goal in result["goals"]} == NAMES
    assert all(goal["holds"] for goal in result["goals"]), result["goals"]
    assert result["gpus"]["placements"] >= 25
    assert result["cells"]["microbatches"] > 100
