"""Parts of the suite for a day with a GPU: what each one's figures and goals are made of."""

import argparse
import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks import gpu_rollout
from benchmarks.gpu_suite import __main__ as suite
from benchmarks.gpu_suite import steps
from benchmarks.gpu_suite.environment import computes_on
from benchmarks.gpu_suite.part import PartOptions
from benchmarks.gpu_suite.parts import Part
from benchmarks.gpu_suite.phases import measure
from benchmarks.gpu_suite.speculation import Drafts
from benchmarks.gpu_suite.speculation import goals_of as drafts_goals
from troupe.errors import UnavailableError
from troupe.spec import load_spec
from troupe.spec.job import JobSpec
from troupe_rollout.engines.sglang.client import SglangClient
from troupe_trainer.model import kernels
from troupe_trainer.model.kernels import AttentionChoice, Kernels, choose

ROOT = Path(__file__).parents[2]
ONE_MORE = """
import argparse, json
parser = argparse.ArgumentParser()
parser.add_argument("--before", type=json.loads, default=[])
rows = [*(before := parser.parse_args().before), {"case": len(before)}]
more = {} if len(rows) == 3 else {"unfinished": f"no time for {len(rows)}"}
print(json.dumps({"rows": rows, "goals": [], **more}))
"""


@pytest.mark.parametrize("device", ["meta", "cuda:99", "no such device"])
def test_device_when_it_cannot_multiply_then_does_not_compute(device: str) -> None:
    assert computes_on("cpu")
    assert not computes_on(device)


def test_steps_when_time_is_over_then_says_so_and_the_next_call_measures_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tried: list[str] = []

    def row_of(case: steps.StepCase, options: PartOptions, folder: Path) -> dict[str, Any]:
        tried.append(case.name)
        return {"case": case.name, "tokens_per_s": 100}

    monkeypatch.setattr(steps, "row_of", row_of)
    names = [case.name for case in steps.QUICK]
    none = steps.measure(PartOptions("cpu", True, "", -1.0))
    assert (none["rows"], none["unfinished"]) == ([], f"no time for {'; '.join(names)}")
    before = [{"case": names[0], "tokens_per_s": 7}, {"case": names[1], "error": "out of memory"}]
    rest = steps.measure(PartOptions("cpu", True, "", 600.0, before))
    assert tried == names[1:]
    assert [row["case"] for row in rest["rows"]] == names
    assert rest["rows"][0] == before[0]
    assert "unfinished" not in rest


def test_steps_when_flash_attention_is_installed_then_trees_segments_and_mask_are_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Kernels] = []

    def learner(name: str, spec: JobSpec, *_: Any, attention: AttentionChoice, **__: Any) -> None:
        made.append(choose(spec.policies[name], "cuda", attention))
        raise UnavailableError("the kernels are chosen")

    monkeypatch.setattr(kernels, "is_flash_attn_2_available", lambda: True)
    monkeypatch.setattr(steps, "Learner", learner)
    for case in steps.QUICK[:3]:
        with pytest.raises(UnavailableError, match="are chosen"):
            steps.row_of(case, PartOptions("cpu", True, "", 600.0), tmp_path)
    assert [(one.attention, one.is_packed) for one in made] == [("sdpa", False)] * 3


def test_suite_when_a_part_is_unfinished_then_it_is_tried_again_and_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "one_more.py").write_text(ONE_MORE)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    part = Part("more", "", "one_more", 0.0, 60.0, lambda _: [], has_limit=False, has_rows=True)
    monkeypatch.setattr(suite, "PARTS", [part])
    arguments = ["--device", "cpu", "--quick", "--results", str(tmp_path / "lines.jsonl")]

    def call(*more: str) -> dict[str, Any]:
        monkeypatch.setattr(sys, "argv", ["gpu_suite", *arguments, *more])
        suite.main()
        return json.loads(capsys.readouterr().out.strip().splitlines()[-1])

    first = call()
    assert (first["parts"], first["why"]) == ({"more": "unfinished"}, {"more": "no time for 1"})
    assert call()["why"] == {"more": "no time for 2"}
    assert call()["parts"] == {"more": "done"}
    assert call()["parts"] == {"more": "done before"}
    assert call("--again", "more")["why"] == {"more": "no time for 1"}


def test_rollout_when_generation_fails_then_is_unfinished_and_keeps_its_pushes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async def pushed(case: Any, *_: Any) -> dict[str, Any]:
        return {"kind": case.kind, "via": case.via, "p50_s": 0.5}

    async def fails(*_: Any) -> dict[str, Any]:
        raise UnavailableError("no kernel")

    monkeypatch.setattr(gpu_rollout, "measure", pushed)
    monkeypatch.setattr(gpu_rollout, "generation", fails)
    asked = argparse.Namespace(
        device="cpu", shape="tiny", replicas=1, dtype="bfloat16", n=1, prompts=2, tokens=4
    )
    found = asyncio.run(gpu_rollout.run(asked, tmp_path))
    assert found["unfinished"] == "UnavailableError: no kernel"
    assert len(found["rows"]) == 5


async def test_drafts_when_servers_tell_of_them_then_are_counted_and_else_none_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Worked by hand: 5 drafts in 4 verifications are 1 + 5/4 tokens each."""

    async def answers(client: SglangClient, body: dict[str, Any]) -> list[dict[str, Any]]:
        return [{"meta_info": meta} for meta in body["metas"]]

    monkeypatch.setattr(SglangClient, "generate", answers)
    client = SglangClient("http://127.0.0.1:1", timeout_s=1.0)
    some, none, off = Drafts(), Drafts(), Drafts()
    with some.counted():
        metas = [
            {"spec_verify_ct": 3, "spec_num_correct_drafts": 5},
            {"spec_verify_ct": 1, "spec_num_correct_drafts": 0},
        ]
        assert len(await client.generate({"metas": metas})) == 2
    with none.counted():
        await client.generate({"metas": [{"spec_verify_ct": 3, "spec_num_correct_drafts": 0}]})
    with off.counted():
        await client.generate({"metas": [{}]})
    await client.close()
    assert [x.tokens_each for x in (some, none, off)] == [2.25, 1.0, 1.0]


@pytest.mark.parametrize(
    ("each", "worst", "held"), [(1.5, 0.01, (True, True)), (1.0, 0.4, (False, False))]
)
def test_drafts_when_none_is_accepted_or_a_ratio_is_far_off_then_a_goal_is_missed(
    each: float, worst: float, held: tuple[bool, bool]
) -> None:
    drafted = {
        "standard_errors": 0.1,
        "tokens_a_verification": each,
        "ratio_worst": worst,
        "tokens_per_s": 30,
    }
    goals = {g["name"]: g["holds"] for g in drafts_goals({"ngram": drafted, "off": drafted})}
    names = ("tokens a verification, above", "worst |ratio - 1| with drafts")
    assert tuple(goals[name] for name in names) == held
    assert goals["standard errors of surprisal to entropy"]


@pytest.mark.parametrize(("peak", "figure"), [(None, None), (3 * 10**9, 3.0)])
def test_phases_when_no_memory_was_measured_then_no_goal_is_given_for_it(
    peak: int | None, figure: float | None, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    run.mkdir()
    spec = load_spec(ROOT / "examples/math.yaml")
    (run / "spec.json").write_text(spec.model_dump_json())
    step = {"kind": "train", "wall_s": 9.0, "phases": {"learn": 3.0}, "peak_memory_bytes": peak}
    (run / "metrics.jsonl").write_text(json.dumps(step) + "\n")
    found = measure(argparse.Namespace(run=run, shared=True, gpu_gb=80.0))
    assert found["peak_memory_gb"] == figure
    names = [goal["name"] for goal in found["goals"]]
    assert ("peak of the job's trainer, GB" in names) == (peak is not None)
