"""What the trainer keeps of policies that never learn: their weights, and nothing beside them."""

from pathlib import Path
from typing import Any

import pytest
from trainer_data import FULL, groups_of_step, job_spec

from troupe.spec.job import JobSpec
from troupe.spec.memory import GB, trainer_held, trainer_peak
from troupe.spec.policy import PolicySpec
from troupe.spec.sizes import rank_host_bytes
from troupe_trainer.learn.collector import Batch
from troupe_trainer.learn.learner import Learner
from troupe_trainer.learn.learners import Learners

SMALL, LARGE = 1_720_574_976, 14_768_307_200
"""Parameters of Qwen3-1.7B and Qwen3-14B."""


def duo(model: Path | str, dtype: str = "bfloat16", **partner: Any) -> JobSpec:
    """A policy that is trained whole beside one that never learns, with a KL term."""
    body = {"model": str(model), "train": FULL, "dtype": dtype}
    return job_spec(
        Path(model),
        agents={"tool": {"policy": "one"}, "planner": {"policy": "two"}},
        policies={"one": body, "two": body | partner},
        algorithm={"group_size": 4, "loss": {"kl": {"coef": 0.01}}},
    )


def held_bytes(learner: Learner) -> int:
    """Of all modules of its model, each tensor once."""
    tensors = {p.data_ptr(): p.nbytes for m in learner.model.modules() for p in m.parameters()}
    return sum(tensors.values())


@pytest.mark.parametrize("partner", [{"frozen": True}, {"past": {"of": "one", "every": 1}}])
async def test_untrained_when_the_loss_has_a_kl_term_then_has_no_reference_and_no_moments(
    tiny_model: Path, tmp_path: Path, partner: dict[str, Any]
) -> None:
    spec = duo(tiny_model, "float32", **partner)
    team = await Learners.load(spec, tmp_path, device="cpu", threads=1)
    try:
        await team.learn(Batch(0, {"one": groups_of_step(0), "two": []}, {}))
        one, two = (team.by_policy[name] for name in ("one", "two"))
        weights = sum(p.nbytes for p in two.model.trainable().values())
        assert held_bytes(two) == weights
        assert held_bytes(one) == 2 * weights  # with its reference
        assert any(name.startswith("adam.") for name in one.state().tensors)
        assert all(name.startswith("param/") for name in two.state().tensors if "/" in name)
    finally:
        team.close()


@pytest.mark.parametrize("partner", [{"frozen": True}, {"past": {"of": "one", "every": 1}}])
def test_prediction_when_a_policy_never_learns_then_has_its_weights_alone(
    partner: dict[str, Any],
) -> None:
    job = duo("Qwen/Qwen3-1.7B", **partner)
    alone = job.model_copy(update={"policies": {"one": job.policies["one"]}})

    def more(measure: Any, **settings: Any) -> float:
        return measure(job, **settings) - measure(alone, **settings)

    assert more(trainer_held) == pytest.approx(4 * SMALL)
    settings: dict[str, Any] = {"tokens": 4096, "checkpoint_activations": True}
    assert more(trainer_peak, **settings) == pytest.approx(4 * SMALL)
    assert more(trainer_peak, ranks=2, **settings) == pytest.approx(4 * SMALL / 2)
    assert more(lambda spec: rank_host_bytes(spec, 2)) == pytest.approx(4 * SMALL / 2)
    apart = job.trainer.model_copy(update={"per_policy": True})
    assert trainer_peak(job.model_copy(update={"trainer": apart}), **settings) == trainer_peak(
        alone, **settings
    )


def test_prediction_when_a_frozen_partner_is_another_model_then_has_its_base_and_adapter() -> None:
    job = duo("Qwen/Qwen3-1.7B")
    answerer = PolicySpec(model="Qwen/Qwen3-14B", dtype="bfloat16", frozen=True)
    beside = job.model_copy(update={"policies": {"one": job.policies["one"], "two": answerer}})
    alone = job.model_copy(update={"policies": {"one": job.policies["one"]}})
    more = (trainer_held(beside) or 0.0) - (trainer_held(alone) or 0.0)
    assert 2 * LARGE < more < 2 * LARGE + 0.5 * GB
