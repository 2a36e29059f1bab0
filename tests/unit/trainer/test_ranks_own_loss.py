"""An own loss over two gloo ranks: its metrics, and what it raises on one of them."""

import contextlib
import threading
from pathlib import Path
from typing import Any

import pytest
import torch.distributed as dist
from ranks_world import load, ranks_with
from trainer_data import groups_of_step, job_spec

from troupe.algorithms.load import load_algorithm
from troupe.candidates import group_outcome
from troupe.errors import JobFailedError
from troupe.spec.job import JobSpec
from troupe_trainer.job import heed
from troupe_trainer.learn.learner import Learner
from troupe_trainer.model.ranks.group import Ranks
from troupe_trainer.model.ranks.start import start
from troupe_trainer.samples import CreditedGroup, credit

OWN = """
import torch.distributed as dist
from troupe.algorithms.base import GroupRelative

class Own(GroupRelative):
    sampling = "tree"

    def loss(self, inputs):
        output = super().loss(inputs)
        output.metric_sums[f"seen_by_{dist.get_rank()}"] = float(len(inputs.weights_N))
        return output

class Fails(Own):
    def loss(self, inputs):
        if dist.get_rank() == 1:
            raise ValueError("no such group")
        return super().loss(inputs)
"""


def _spec(tiny_model: Path, folder: Path, name: str) -> JobSpec:
    (folder / "own.py").write_text(OWN)
    return job_spec(
        tiny_model,
        algorithm={"kind": f"{folder}/own.py:{name}", "group_size": 4},
        batch={"tokens_per_row": 32, "rows_per_microbatch": 1},
    )


def _learner(spec: JobSpec, ranks: Ranks) -> tuple[Learner, list[CreditedGroup]]:
    algorithm = load_algorithm(spec.algorithm)
    groups = groups_of_step(0, tasks=3)
    credited = [credit(g, algorithm.advantages(group_outcome(g)), 1.0) for g in groups]
    return Learner("shared", spec, algorithm, device="cpu", ranks=ranks), credited


def test_own_loss_when_each_rank_has_another_metric_then_all_are_summed(
    tiny_model: Path, tmp_path: Path
) -> None:
    spec = _spec(tiny_model, tmp_path, "Own")
    with ranks_with(spec) as ranks:
        learner, credited = _learner(spec, ranks)
        metrics = learner.step(credited).metrics
    assert min(metrics["seen_by_0"], metrics["seen_by_1"]) > 0
    assert metrics["seen_by_0"] + metrics["seen_by_1"] == pytest.approx(1.0)


def test_own_loss_when_it_raises_on_rank_1_alone_then_rank_0_sees_its_line(
    tiny_model: Path, tmp_path: Path
) -> None:
    spec = _spec(tiny_model, tmp_path, "Fails")
    started = start(2, device="cpu", threads=1)
    load(spec, started.ranks)
    learner, credited = _learner(spec, started.ranks)

    def step() -> None:
        with contextlib.suppress(RuntimeError):  # the other rank is ended below
            learner.step(credited)

    learning = threading.Thread(target=step, daemon=True)
    learning.start()
    try:
        for _ in range(600):
            learning.join(0.1)
            if reason := started.ranks.failure():
                break
        assert learning.is_alive()
        assert reason is not None
        assert "loss raised ValueError: no such group" in reason
        assert "own.py" in reason
    finally:
        started.ending.set()
        for child in started.children:
            child.kill()
            child.wait()
        learning.join(60)
        dist.destroy_process_group()


class _Failing(Ranks):
    """Two ranks, of which one failed."""

    size = 2

    def failure(self) -> str | None:
        return "algorithm 'Own': loss raised"


async def test_job_when_a_rank_alone_cannot_go_on_then_it_fails_with_its_reason() -> None:
    told: list[Any] = []

    async def tell(reason: str) -> None:
        told.append(reason)

    with pytest.raises(JobFailedError, match="'Own': loss raised"):
        await heed(_Failing(), tell)
    assert told == ["algorithm 'Own': loss raised"]
    await heed(Ranks(), tell)  # a single process waits for nobody
