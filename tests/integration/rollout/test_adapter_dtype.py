"""Adapters are sent in the number format in which the replicas' engines compute them."""

import contextlib
from pathlib import Path

import pytest

from benchmarks.rollout_fleet import Members, TinyTrainer, publisher, sidecar
from troupe.spec.policy import LoraSpec, PolicySpec
from troupe_rollout.engines.cpu import CpuEngine


class BfloatEngine(CpuEngine):
    """One that says that it computes adapters in bfloat16, as SGLang does."""

    adapter_dtype = "bfloat16"


@pytest.mark.parametrize(
    ("engines", "dtype", "expected"),
    [
        ([BfloatEngine, BfloatEngine], "bfloat16", "bfloat16"),
        ([BfloatEngine, CpuEngine], "bfloat16", "float32"),
        ([CpuEngine], "bfloat16", "float32"),
        ([BfloatEngine], "float32", "float32"),
    ],
)
async def test_adapter_when_all_engines_compute_it_in_bfloat16_then_is_sent_so(
    engines: list[type[CpuEngine]], dtype: str, expected: str, rollout_model: Path, tmp_path: Path
) -> None:
    train = LoraSpec(rank=2, alpha=4)
    policies = {"p": PolicySpec.model_validate({"model": str(rollout_model), "dtype": dtype})}
    policies = {"p": policies["p"].model_copy(update={"train": train})}
    async with contextlib.AsyncExitStack() as stack:
        sidecars = []
        for number, kind in enumerate(engines):
            engine = kind()
            stack.push_async_callback(engine.stop)
            await engine.start(policies)
            place = sidecar(engine, tmp_path / f"r{number}", f"r{number}")
            sidecars.append(await stack.enter_async_context(place))
        publish = publisher(Members(sidecars), policies, 20.0)
        stack.push_async_callback(publish.close)
        await publish.wait_for_replicas()
        assert publish.adapter_dtype("p") == expected
        trainer = TinyTrainer("p", policies["p"], tmp_path / "out")
        trainer.learn(1)
        export = trainer.export(0, publish.adapter_dtype("p"))
        short = {"bfloat16": "BF16", "float32": "F32"}[expected]
        assert {tensor.dtype for tensor in export.manifest.tensors} == {short}
        await publish.publish(export)
        for replica in sidecars:
            assert replica.engine.policies()[0].tensor_digest == export.manifest.tensor_digest
