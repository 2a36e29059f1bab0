"""Demonstrations in a file: whose they are, their tokens, what is refused, what a job reports."""

import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from algorithm_world import build_planner
from trainer_data import LORA, groups_of_step, imitating_spec, job_spec, make_group
from transformers import AutoTokenizer

from troupe.data.sources import digest_of
from troupe.errors import InvalidArgumentError
from troupe.runtime.step_report.trainer import TrainerPart, over_policies
from troupe.samplers.tree import TreeSampler
from troupe.spec.algorithm import DemonstrationsSpec, FilterSpec
from troupe.spec.job import JobSpec
from troupe.tasks.family import Message
from troupe_rollout.engines.chat import ChatTemplate
from troupe_trainer.learn.collector import Batch
from troupe_trainer.learn.demonstrations import demonstrations_of
from troupe_trainer.learn.learners import Learners
from troupe_trainer.learn.report import step_report


@pytest.fixture(scope="module")
def planner(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model with a tokenizer."""
    return build_planner(tmp_path_factory.mktemp("planner"), steps=2)


def _rows(folder: Path, *rows: dict[str, Any]) -> Path:
    path = folder / "shown.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


SHOWN = [{"role": "system", "content": "Plan."}, {"role": "user", "content": "grid: S . G"}]
ROW = {"agent": "tool", "messages": SHOWN, "answer": "right right"}


def _of_file(planner: Path, path: Path, **more: Any) -> JobSpec:
    return imitating_spec(planner, LORA, path=str(path), **more)


def test_tokens_when_a_row_is_read_then_are_the_engines_prompt_and_an_answer_that_ends(
    planner: Path, tmp_path: Path
) -> None:
    spec = _of_file(planner, _rows(tmp_path, ROW), per_update=1)
    found = demonstrations_of("shared", spec, TreeSampler(4))
    assert found is not None
    (prompt,) = found.of_update(0)
    tokenizer: Any = AutoTokenizer.from_pretrained(planner)
    engine = ChatTemplate(tokenizer, str(planner))
    assert prompt.prompt.tolist() == engine.render([Message(**m) for m in SHOWN])  # type: ignore[arg-type]
    (sample,) = prompt.samples
    assert int(sample.token_ids[-1]) == tokenizer.eos_token_id
    assert engine.answer_text(list(sample.token_ids), [], calls=False) == "right right"
    assert sample.temperature == 1.0


def test_policies_when_each_has_agents_then_gets_their_rows_alone(
    planner: Path, tmp_path: Path
) -> None:
    path = _rows(tmp_path, ROW, {**ROW, "agent": "planner", "answer": "left"})
    base = _of_file(planner, path).model_dump()
    policy = base["policies"].pop("shared")
    base["policies"] = {"a": policy, "b": {**policy, "frozen": True}, "c": policy}
    base["agents"] = {"tool": {"policy": "a"}, "planner": {"policy": "b"}}
    spec = JobSpec.model_validate(base)
    shown = demonstrations_of("a", spec, TreeSampler(4))
    assert shown is not None and len({id(p) for p in shown.of_update(0)}) == 1
    assert demonstrations_of("b", spec, TreeSampler(4)) is None


@pytest.mark.parametrize(
    ("row", "more", "why"),
    [
        ({**ROW, "agent": "tol"}, {}, "row 2: agent is 'tol'"),
        (
            {**ROW, "answer": "right " * 300},
            {},
            r"row 2: the answer has \d+ tokens .* may write 256",
        ),
        (ROW, {"sha256": "0" * 64}, "is another file than the job began with"),
    ],
)
def test_file_when_it_is_not_what_the_job_can_learn_then_says_what_to_do(
    row: dict[str, Any], more: dict[str, Any], why: str, planner: Path, tmp_path: Path
) -> None:
    spec = _of_file(planner, _rows(tmp_path, ROW, row), **more)
    with pytest.raises(InvalidArgumentError, match=why) as caught:
        demonstrations_of("shared", spec, TreeSampler(4))
    assert caught.value.pointer == "/algorithm/demonstrations/path"


def test_file_when_no_learning_policy_has_a_row_then_is_refused(
    planner: Path, tmp_path: Path
) -> None:
    base = _of_file(planner, _rows(tmp_path, ROW)).model_dump()
    policy = base["policies"].pop("shared")
    base["policies"] = {"a": policy, "b": {**policy, "frozen": True}}
    base["agents"] = {"tool": {"policy": "b"}, "planner": {"policy": "a"}}
    why = r"no row of an agent that learns \(planner\)"
    with pytest.raises(InvalidArgumentError, match=why) as caught:
        demonstrations_of("a", JobSpec.model_validate(base), TreeSampler(4))
    assert caught.value.pointer == "/algorithm/demonstrations/path"


async def test_job_when_it_imitates_then_the_report_has_it_and_the_answers_become_likelier(
    planner: Path, tmp_path: Path
) -> None:
    """Through the trainer's own loading, learning and report, groups flat and with signal."""
    path = _rows(tmp_path, ROW, {**ROW, "answer": "right"})
    spec = _of_file(planner, path, per_update=2, weight=1.0, sha256=digest_of(path))
    team = await Learners.load(spec, tmp_path, device="cpu", threads=1)
    try:
        lines: list[dict[str, Any]] = []
        for step in range(6):
            batch = Batch(step, {"shared": groups_of_step(step)}, {})
            part = step_report(batch, await team.learn(batch), 0.1)
            lines.append(part.to_line())
            assert TrainerPart.from_wire(part.to_wire()) == part
    finally:
        team.close()
    losses = [line["demonstration_loss"] for line in lines]
    assert losses == sorted(losses, reverse=True)
    assert losses[-1] < 0.85 * losses[0], losses
    assert all(line["demonstration_tokens"] == lines[0]["demonstration_tokens"] for line in lines)
    assert all(line["demonstration_weight"] == 1.0 for line in lines)


async def test_job_when_a_filter_leaves_out_all_groups_then_demonstrations_still_teach(
    planner: Path, tmp_path: Path
) -> None:
    path = _rows(tmp_path, ROW, {**ROW, "answer": "right"})
    spec = _of_file(planner, path, per_update=1, weight=1.0, minibatches=2)
    algorithm = spec.algorithm.model_copy(update={"filters": FilterSpec(zero_variance=True)})
    spec = spec.model_copy(update={"algorithm": algorithm})
    team = await Learners.load(spec, tmp_path, device="cpu", threads=1)
    try:
        losses: list[float] = []
        for step in range(3):
            rng = random.Random(step)
            groups = [make_group(rng, step=step, task=n, rewards=[1.0] * 4) for n in range(2)]
            batch = Batch(step, {"shared": groups}, {})
            line = step_report(batch, await team.learn(batch), 0.1).to_line()
            assert line["is_flat"]
            losses.append(line["demonstration_loss"])
        nobody = await team.learn(Batch(3, {"shared": []}, {}))
        assert "demonstration_loss" not in nobody.outcomes["shared"].metrics
        # Two updates a step: each row is shown once in every step, and the rate goes on.
        assert team.states()["shared"].optimizer_step == 6
    finally:
        team.close()
    assert losses == sorted(losses, reverse=True)
    assert losses[-1] < losses[0]


def test_report_when_policies_have_trainers_then_the_loss_is_weighed_by_tokens_shown() -> None:
    """Worked by hand: 10 tokens at 2 nats and 30 at 4 are 3.5 in the mean."""
    part = TrainerPart(step=0, demonstration_loss=2.0, demonstration_tokens=10, trained_tokens=900)
    other = replace(part, demonstration_loss=4.0, demonstration_tokens=30, trained_tokens=100)
    whole = over_policies([part, other])
    assert (whole.demonstration_loss, whole.demonstration_tokens) == (3.5, 40)
    assert over_policies([replace(part, demonstration_loss=None, demonstration_tokens=None)]) == (
        TrainerPart(step=0, trained_tokens=900)
    )


def test_spec_when_it_has_none_then_is_written_as_before(tiny_model: Path) -> None:
    assert "demonstrations" not in job_spec(tiny_model).model_dump()["algorithm"]
    assert DemonstrationsSpec(path="a").model_dump(exclude_defaults=True) == {"path": "a"}
