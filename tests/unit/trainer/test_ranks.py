"""Two gloo ranks on the CPU learn what one process learns."""

import math
import os
import pickle
import random
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, ClassVar, cast

import numpy as np
import pytest
import torch
from ranks_world import ranks_with
from safetensors.torch import load_file
from trainer_data import groups_of_step, job_spec, make_group

from troupe.algorithms.at_grpo import AtGrpo
from troupe.api.records.v1 import records_pb2 as pb
from troupe.candidates import group_outcome
from troupe.episodes.build import refuse_what_cannot_spread
from troupe.errors import InvalidArgumentError
from troupe.spec.job import JobSpec
from troupe_trainer.checkpoint.export import export_artifacts
from troupe_trainer.learn.follower import follow
from troupe_trainer.learn.learner import Learner
from troupe_trainer.learn.outcome import NonFiniteError
from troupe_trainer.model.learner_state import LearnerState
from troupe_trainer.model.packing import Microbatch, lay_out, microbatch
from troupe_trainer.model.ranks.group import LOAD, Ranks
from troupe_trainer.model.ranks.start import start
from troupe_trainer.model.ranks.wire import Message, decode, encode
from troupe_trainer.model.shares import deal
from troupe_trainer.samples import CreditedGroup, credit

NAMES = (
    "loss",
    "grad_norm",
    "entropy",
    "kl_rollout",
    "ratio_mean",
    "ratio_max",
    "kl_ref",
    "kl_coef",
)


def _spec(tiny_model: Path) -> JobSpec:
    """Both kinds of policy, minibatches, a reference that is held, and old log probabilities."""
    optimizer = {"learning_rate": 0.01, "warmup_steps": 0}
    policies = {
        "adapter": {"model": str(tiny_model), "train": {"kind": "lora", "rank": 4}},
        "whole": {"model": str(tiny_model), "train": {"kind": "full"}},
    }
    loss = {"kl": {"coef": 0.1, "adaptive": {"target": 0.05}}, "importance": {}}
    return job_spec(
        tiny_model,
        agents={"tool": {"policy": "adapter"}, "planner": {"policy": "whole"}},
        policies={n: p | {"optimizer": optimizer} for n, p in policies.items()},
        algorithm={"group_size": 4, "minibatches": 2, "epochs": 2, "loss": loss},
        batch={"tokens_per_row": 32, "rows_per_microbatch": 1},
    )


def _credited(step: int, spec: JobSpec) -> list[CreditedGroup]:
    algorithm = AtGrpo(spec.algorithm)
    groups = groups_of_step(step, tasks=3)
    return [credit(g, algorithm.advantages(group_outcome(g)), 1.0) for g in groups]


def _close(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    kinds = {name: "param" in name for name in one}
    return one.keys() == other.keys() and all(
        torch.allclose(one[n], other[n], atol=2e-4) for n, is_it in kinds.items() if is_it
    )


def test_learners_when_spread_over_two_ranks_then_learn_export_and_resume_as_one_process(
    tiny_model: Path, tmp_path: Path
) -> None:
    spec = _spec(tiny_model)
    with ranks_with(spec) as ranks:
        for policy in sorted(spec.policies):
            _compare(policy, spec, ranks, tmp_path)


def _compare(policy: str, spec: JobSpec, ranks: Any, tmp_path: Path) -> None:
    algorithm = AtGrpo(spec.algorithm)
    spread = Learner(policy, spec, algorithm, device="cpu", ranks=ranks)
    alone = Learner(policy, spec, algorithm, device="cpu")
    held = sum(p.to_local().numel() for p in spread.model.trainable().values())  # type: ignore[attr-defined]
    assert held < 0.6 * sum(p.numel() for p in alone.model.trainable().values())
    for step in range(3):
        got, want = (x.step(_credited(step, spec), step) for x in (spread, alone))
        assert got.trained_tokens == want.trained_tokens
        for name in NAMES:
            assert got.metrics[name] == pytest.approx(want.metrics[name], rel=1e-3, abs=1e-5), name
    assert _close(spread.state().tensors, alone.state().tensors)
    for name in ("log_ratios", "reference_kl"):
        by_rank, of_one = (getattr(x, name)(_credited(3, spec)) for x in (spread, alone))
        assert np.allclose(by_rank, of_one, atol=1e-3), name
        assert np.abs(of_one).max() > 0
    tokens = [3, 1, 4, 1, 5, 9]
    assert spread.model.score(tokens) == pytest.approx(alone.model.score(tokens), abs=1e-4)
    weights = [x.model.weights() for x in (spread, alone)]
    assert all(torch.allclose(weights[0][n], weights[1][n], atol=2e-4) for n in weights[1])
    one_by_one = dict[str, torch.Tensor]()
    spread.model.each_weight(one_by_one.__setitem__)
    if not spread.model.is_lora:
        assert all(torch.equal(one_by_one[n], weights[0][n]) for n in weights[1])
    with pytest.raises(ValueError, match="full"):
        spread.model.each_weight(_refuse)  # and the other ranks are not left waiting
    exports = [
        Path(export_artifacts(x, spec.policies[policy], tmp_path / f"{policy}{i}")["merged"])
        for i, x in enumerate((spread, alone))
    ]
    names = [sorted(path.name for path in folder.iterdir()) for folder in exports]
    assert names[0] == names[1]
    for name in names[0]:
        if name.endswith(".json"):
            assert (exports[0] / name).read_text() == (exports[1] / name).read_text(), name
    got_saved, want_saved = (load_file(folder / "model.safetensors") for folder in exports)
    assert got_saved.keys() == want_saved.keys()
    assert all(torch.allclose(got_saved[n], want_saved[n], atol=2e-4) for n in want_saved)
    _ = spread.model.score(tokens)  # gathers what a restored state must not be written to
    spread.restore(alone.state())
    kept, given = spread.state().tensors, alone.state().tensors
    assert all(torch.equal(kept[name], given[name]) for name in given)
    got, want = (x.step(_credited(3, spec), 3) for x in (spread, alone))
    assert got.metrics["loss"] == pytest.approx(want.metrics["loss"], rel=1e-4, abs=1e-6)
    spoilt = credit(make_group(random.Random(1)), [math.inf, 0.0, 0.0, 0.0], 1.0)
    with pytest.raises(NonFiniteError, match=spoilt.record.group_id):
        spread.step([*_credited(4, spec), spoilt], 4)


def test_weights_in_bfloat16_when_spread_then_two_ranks_learn_nearly_what_one_does(
    tiny_model: Path,
) -> None:
    body = _spec(tiny_model).model_dump(mode="json")
    for policy in body["policies"].values():
        policy["dtype"] = "bfloat16"
    body["algorithm"]["epochs"] = 1  # rounding grows with the number of updates
    spec = JobSpec.model_validate(body)
    algorithm = AtGrpo(spec.algorithm)
    with ranks_with(spec) as ranks:
        for policy in sorted(spec.policies):
            spread = Learner(policy, spec, algorithm, device="cpu", ranks=ranks)
            alone = Learner(policy, spec, algorithm, device="cpu")
            one, other = (x.model.weights() for x in (spread, alone))
            assert all(torch.equal(one[name], other[name]) for name in other)
            assert {p.dtype for p in spread.model.trainable().values()} == {torch.float32}
            for step in range(2):
                got, want = (x.step(_credited(step, spec), step) for x in (spread, alone))
                for name in ("loss", "entropy", "kl_rollout"):
                    near = pytest.approx(want.metrics[name], rel=0.1, abs=0.01)
                    assert got.metrics[name] == near, name
                assert got.metrics["grad_norm"] == pytest.approx(want.metrics["grad_norm"], rel=0.2)


def _refuse(name: str, tensor: torch.Tensor) -> None:
    raise ValueError("full")


def _sent(message: Message, num_ranks: int, rank: int) -> Message:
    """``message`` as ``rank`` receives it."""
    encoded = encode(message, num_ranks)
    tensors = iter(encoded.tensors_of(rank))

    def receive(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        tensor = next(tensors)
        assert (tuple(tensor.shape), tensor.dtype) == (shape, dtype)
        return tensor.clone()

    received = decode(encoded.document, rank, receive)
    assert next(tensors, None) is None
    return received


def _minibatch(spec: JobSpec) -> list[list[Any]]:
    cut = make_group(random.Random(2))
    cut.candidates[0].finish_reason = pb.FINISH_REASON_LENGTH
    groups = [
        *_credited(1, spec),
        credit(cut, [1.0, math.inf, -1.0, 0.5], 0.7, drop_truncated=True),
    ]
    return lay_out([p for group in groups for p in group.prompts], spec.batch)


def test_message_when_encoded_then_each_rank_gets_its_own_micro_batches(tiny_model: Path) -> None:
    batches = _minibatch(_spec(tiny_model))
    assert len(batches) % 3
    dealt = deal([batches, batches[:1]], [10, 3], [7, 2], 3)
    seen: list[list[int]] = []
    for rank in range(3):
        policy, method, (shares, is_current) = _sent(("p", "_step", (dealt, True)), 3, rank)
        assert (policy, method, is_current) == ("p", "_step", True)
        assert [(s.denominator, s.num_groups) for s in shares] == [(10, 7), (3, 2)]
        assert [len(s.batches) for s in shares] == [-(-len(batches) // 3), 1]
        for share, mine in zip(shares, dealt.shares[rank], strict=True):
            assert list(share.counts) == list(mine.counts)
            for (got, _), (want, _) in zip(share.microbatches(), mine.microbatches(), strict=True):
                for name in set(Microbatch.__slots__) - {"samples"}:  # type: ignore[attr-defined]
                    assert np.array_equal(getattr(got, name), getattr(want, name)), name
                if mine is dealt.shares[rank][0] and _:
                    seen.append(got.tokens_M.tolist())
    assert sorted(seen) == sorted(microbatch(blocks).tokens_M.tolist() for blocks in batches)


def test_message_when_encoded_then_a_state_travels_without_its_numbers() -> None:
    state = LearnerState(
        {"a/b": torch.arange(6.0).reshape(2, 3), "step": torch.tensor(3.0)}, 7, "b"
    )
    policy, method, (restored, tokens) = _sent(("p", "_restore", (state, [1, 2])), 2, 1)
    assert (policy, method, tokens) == ("p", "_restore", [1, 2])
    assert (restored.optimizer_step, restored.base) == (7, "b")
    for name, tensor in state.tensors.items():
        got = restored.tensors[name]
        assert (got.shape, got.dtype, got.is_meta) == (tensor.shape, tensor.dtype, True)
    assert _sent(("p", "state", ()), 2, 1) == ("p", "state", ())
    with pytest.raises(TypeError, match="not JSON serializable"):
        encode(("p", "step", (object(),)), 2)
    with pytest.raises(TypeError, match="1 shares for 2 ranks"):
        encode(("p", "step", (deal([[]], [0], [0], 1),)), 2)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x80\x04N.",
        b"[]",
        b'{"policy": "p", "method": "m", "arguments": [{"kind": "pickle"}]}',
        b'{"policy": "p", "method": "m", "arguments": [{"kind": "shares", "sizes": []}]}',
        pickle.dumps(("p", "step", ())),
    ],
)
def test_message_when_it_is_something_else_then_is_refused(data: bytes) -> None:
    def receive(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        raise AssertionError((shape, dtype))

    with pytest.raises(ConnectionError, match="is no message"):
        decode(data, 1, receive)


@pytest.mark.parametrize("method", ["__init__", "alone", "no_such"])
def test_follower_when_told_what_ranks_do_not_run_then_refuses(
    tiny_model: Path, method: str
) -> None:
    class Instructions(Ranks):
        messages: ClassVar[list[Message]] = [
            ("", LOAD, (_spec(tiny_model).model_dump_json(), "auto")),
            ("adapter", "_step", ([], True, [], [])),
            ("adapter", method, ()),
        ]

        def next_message(self) -> Message:
            return self.messages.pop(0)

    with pytest.raises(ConnectionError, match=f"asked for '{method}', which ranks do not run"):
        follow(cast("Any", Instructions()), device="cpu", threads=1)


def test_refuse_when_a_policy_takes_over_weights_then_names_it(tiny_model: Path) -> None:
    spec = _spec(tiny_model)
    refuse_what_cannot_spread(spec, AtGrpo(spec.algorithm), 1)
    other = job_spec(
        tiny_model,
        agents={"tool": {"policy": "shared"}, "planner": {"policy": "past"}},
        policies={
            "shared": {"model": str(tiny_model)},
            "past": {"model": str(tiny_model), "past": {"of": "shared", "every": 2}},
        },
    )

    with pytest.raises(InvalidArgumentError, match="'past' takes over weights"):
        refuse_what_cannot_spread(other, AtGrpo(other.algorithm), 2)


def test_start_when_the_machine_has_fewer_gpus_then_refused_before_any_process() -> None:
    with pytest.raises(InvalidArgumentError, match="4 ranks and sees 0 GPUs"):
        start(1, device="cuda", threads=1, asked=4)


def test_start_when_torchrun_has_another_number_than_the_job_then_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "16")
    with pytest.raises(InvalidArgumentError, match=r"started 16 ranks .* trainer\.gpus: 8"):
        start(1, device="cpu", threads=1, asked=8)


STOPPED = """
import os, signal, sys, time
from troupe_trainer.model.ranks.start import start

asked = []
signal.signal(signal.SIGTERM, lambda *_: asked.append(1))
started = start(2, device="cpu", threads=1)
print("joined", flush=True)
while not asked:
    time.sleep(0.05)
time.sleep(2.0)  # the step that is saved meanwhile needs both ranks
[child] = started.children
print("both live" if child.poll() is None else "one died", flush=True)
child.kill()
os._exit(0)
"""


def test_ranks_when_the_group_of_processes_is_told_to_end_then_rank_0_decides_when() -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", STOPPED], stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "joined\n"
        os.killpg(process.pid, signal.SIGTERM)
        assert process.stdout.readline() == "both live\n"
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
