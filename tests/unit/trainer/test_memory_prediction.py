"""The memory that is predicted is the memory that the trainer's own passes allocate."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks.trainer_size.allocation_counter import count, count_forward, save_config
from troupe.cli.spec_commands import predicted as memory_sentence
from troupe.cli.starter import starter_spec
from troupe.errors import InvalidArgumentError
from troupe.runtime.engines.presets import ModelShape
from troupe.spec import load_spec, parse_spec
from troupe.spec.batch import BatchSpec
from troupe.spec.fit import fit_batch
from troupe.spec.memory import (
    GB,
    USABLE,
    Prediction,
    beside_teacher,
    decoder_shape,
    head_chunk,
    predict,
    trainer_peak,
)
from troupe.spec.policy import FullSpec, LoraSpec, PolicySpec
from troupe.spec.sizes import rank_host_bytes
from troupe_trainer.model.logprobs import tokens_per_chunk

ROOT = Path(__file__).parents[3]
SMALL, LARGE, CODER = (
    decoder_shape(f"Qwen/{name}")
    for name in ("Qwen3-1.7B", "Qwen3-8B", "Qwen2.5-Coder-1.5B-Instruct")
)
LORA, FULL = LoraSpec(rank=32, alpha=64), FullSpec()


@pytest.mark.filterwarnings("ignore:Accessing the data pointer of FakeTensor")
@pytest.mark.parametrize(
    ("shape", "train", "dtype", "checkpointed", "layers", "copies", "sums_exactly"),
    [
        (LARGE, FULL, "bfloat16", True, 4, 3, True),
        (SMALL, FULL, "bfloat16", False, 4, 2, True),
        (SMALL, FULL, "float32", True, 4, 1, True),
        (SMALL, LoraSpec(rank=512, alpha=64), "bfloat16", True, 4, 1, True),
        (SMALL, LORA, "bfloat16", True, 28, 3, False),
        (SMALL, LORA, "bfloat16", False, 4, 3, False),
        (SMALL, LORA, "float32", False, 4, 1, False),
        (LARGE, LORA, "bfloat16", True, 4, 3, False),
        (LARGE, LORA, "bfloat16", False, 4, 2, False),
        (CODER, LORA, "bfloat16", False, 4, 2, False),
        (LARGE, FULL, "bfloat16", True, 4, 3, False),
        (SMALL, FULL, "bfloat16", False, 4, 2, False),
        (SMALL, FULL, "float32", True, 4, 3, False),
    ],
)
def test_prediction_when_compared_with_an_allocation_counter_then_is_within_10_percent(
    shape: ModelShape,
    train: LoraSpec | FullSpec,
    dtype: str,
    checkpointed: bool,
    layers: int,
    copies: int,
    sums_exactly: bool,
    tmp_path: Path,
) -> None:
    # The counted model is a Qwen3; the others differ in biases and norms alone.
    shape = replace(shape, layers=layers, has_qk_norm=True, has_qkv_bias=False)
    policy = PolicySpec.model_validate(
        {"model": str(save_config(shape, tmp_path)), "train": train, "dtype": dtype}
    )
    assert decoder_shape(policy.model) == shape
    counted = count(
        policy,
        prompt=512,
        completions=[1024] * 4,
        copies=copies,
        checkpoint_activations=checkpointed,
        sums_exactly=sums_exactly,
    )
    predicted = predict(
        shape,
        policy,
        tokens=counted["tokens"],
        checkpoint_activations=checkpointed,
        sums_exactly=sums_exactly,
    )
    print(f"\npredicted {predicted.peak / GB:.2f} GB, counted {counted['peak'] / GB:.2f} GB")
    assert predicted.peak == pytest.approx(counted["peak"], rel=0.1)
    assert predicted.held == pytest.approx(counted["before"], rel=0.05)


@pytest.mark.filterwarnings("ignore:Accessing the data pointer of FakeTensor")
@pytest.mark.parametrize(
    ("shape", "train", "dtype", "checkpointed", "layers", "vocabulary", "ranks"),
    [
        (LARGE, FULL, "bfloat16", True, 4, 151936, 8),
        (LARGE, FULL, "bfloat16", True, 8, 2000, 2),
        (LARGE, FULL, "bfloat16", False, 4, 2000, 8),
        (SMALL, FULL, "float32", True, 4, 2000, 4),
        (LARGE, LORA, "bfloat16", True, 4, 2000, 8),
        (SMALL, LORA, "bfloat16", False, 4, 151936, 2),
        pytest.param(
            *(LARGE, FULL, "bfloat16", True, 36, 151936, 8),
            marks=[pytest.mark.slow, pytest.mark.timeout(600)],
        ),
    ],
)
def test_prediction_for_ranks_when_counted_then_is_within_10_percent_and_two_layers_are_gathered(
    shape: ModelShape,
    train: LoraSpec | FullSpec,
    dtype: str,
    checkpointed: bool,
    layers: int,
    vocabulary: int,
    ranks: int,
    tmp_path: Path,
) -> None:
    shape = replace(shape, layers=layers, vocab=vocabulary, has_qk_norm=True, has_qkv_bias=False)
    policy = PolicySpec.model_validate(
        {"model": str(save_config(shape, tmp_path)), "train": train, "dtype": dtype}
    )
    counted = count(
        policy,
        prompt=512,
        completions=[1024] * 4,
        copies=3,
        checkpoint_activations=checkpointed,
        ranks=ranks,
    )
    predicted = predict(
        shape, policy, tokens=counted["tokens"], checkpoint_activations=checkpointed, ranks=ranks
    )
    print(
        f"\n{layers} layers, {ranks} ranks: {counted['peak'] / GB:.2f} GB counted, "
        f"{predicted.peak / GB:.2f} GB predicted; at most {counted['layers']} layers are gathered"
    )
    assert 0.9 <= predicted.peak / counted["peak"] <= 1.1
    assert predicted.held == pytest.approx(counted["before"], rel=0.05)
    assert counted["layers"] <= 2


def test_full_weights_of_8b_when_on_eight_gpus_then_fit_80_gb_and_say_their_host_memory() -> None:
    spec = load_spec(ROOT / "examples/math.yaml")
    policy = next(iter(spec.policies.values())).model_copy(
        update={"model": "Qwen/Qwen3-8B", "dtype": "bfloat16", "train": FULL}
    )
    agents = {n: a.model_copy(update={"policy": "shared"}) for n, a in spec.agents.items()}
    job = spec.model_copy(update={"policies": {"shared": policy}, "agents": agents})
    with pytest.raises(InvalidArgumentError, match="GB on its GPU"):
        fit_batch(job, 80 * GB)
    fit = fit_batch(job, 80 * GB, ranks=8)
    assert fit.peak_bytes is not None
    assert fit.peak_bytes <= USABLE * 80 * GB
    assert fit.batch.budget == 65536
    host = rank_host_bytes(job, 8)
    assert host is not None
    assert LARGE is not None
    assert host <= 12 * LARGE.num_parameters() / 8 + 2 * GB
    said = memory_sentence(job, 80, 8)
    assert f"{host / GB:.1f} GB of host memory for each of 8 ranks" in said
    offloaded = job.model_copy(update={"trainer": job.trainer.model_copy(update={"offload": True})})
    less = fit_batch(offloaded, 80 * GB, ranks=2).peak_bytes
    assert less is not None
    assert less < fit.peak_bytes
    assert (rank_host_bytes(offloaded, 2) or 0.0) > 100 * GB


@pytest.mark.filterwarnings("ignore:Accessing the data pointer of FakeTensor")
@pytest.mark.parametrize(
    ("shape", "dtype", "vocabulary", "copies"),
    [
        (LARGE, "bfloat16", 151936, 2),
        (LARGE, "bfloat16", 2000, 6),
        (SMALL, "float32", 151936, 2),
        (SMALL, "float32", 2000, 6),
    ],
)
def test_prediction_of_a_teacher_when_counted_then_is_within_10_percent(
    shape: ModelShape, dtype: str, vocabulary: int, copies: int, tmp_path: Path
) -> None:
    shape = replace(shape, layers=2, vocab=vocabulary, has_qk_norm=True, has_qkv_bias=False)
    policy = PolicySpec.model_validate(
        {"model": str(save_config(shape, tmp_path)), "dtype": dtype, "teacher": str(tmp_path)}
    )
    counted = count_forward(policy, prompt=512, completions=[1024] * 4, copies=copies)
    alone = Prediction(held=0.0, gradients=0.0, activations=0.0, head=0.0, peak=0.0)
    predicted = beside_teacher(alone, shape, dtype, tokens=counted["tokens"])
    assert predicted.held == pytest.approx(counted["before"], rel=0.05)
    assert predicted.peak == pytest.approx(counted["peak"], rel=0.1)


def test_prediction_when_policies_have_one_teacher_then_it_is_in_memory_once() -> None:
    spec = load_spec(ROOT / "examples/math.yaml")
    name, policy = next(iter(spec.policies.items()))
    taught = policy.model_copy(update={"teacher": "Qwen/Qwen3-8B"})

    def peak(*policies: PolicySpec) -> float:
        named = {f"{name}{i}": policy for i, policy in enumerate(policies)}
        job = spec.model_copy(update={"policies": named})
        found = trainer_peak(job, tokens=8192, checkpoint_activations=True)
        assert found is not None
        return found

    assert LARGE is not None
    weights = LARGE.num_parameters() * 2
    one = peak(taught) - peak(policy)
    assert weights <= one < weights + 8 * GB
    assert peak(taught, taught) - peak(policy, policy) == pytest.approx(one, rel=1e-6)


def test_preset_of_init_when_predicted_then_fits_a_gpu_of_24_gb() -> None:
    for sharing in ("shared", "each"):
        fit = fit_batch(parse_spec(starter_spec("math", sharing=sharing), source="init"), 24 * GB)
        assert fit.peak_bytes is not None, "give the shape of this model to troupe/spec/memory.py"
        assert fit.peak_bytes <= USABLE * 24 * GB


def test_fit_when_the_gpu_shrinks_then_activations_go_first_tokens_next_and_then_it_refuses() -> (
    None
):
    spec = load_spec(ROOT / "examples/math.yaml")
    wide = fit_batch(spec, 1000 * GB).batch
    assert (wide.checkpoint_activations, wide.tokens_per_row) == (False, 8192)
    some = fit_batch(spec, 24 * GB).batch
    assert (some.checkpoint_activations, some.tokens_per_row) == (True, 8192)
    few = fit_batch(spec, 16 * GB).batch
    assert few.checkpoint_activations
    assert few.tokens_per_row * few.rows_per_microbatch < 65536
    with pytest.raises(InvalidArgumentError, match="GB on its GPU"):
        fit_batch(spec, 8 * GB)
    policies = {
        n: p.model_copy(update={"dtype": "float32", "train": FULL, "model": "Qwen/Qwen3-8B"})
        for n, p in spec.policies.items()
    }
    large = spec.model_copy(update={"policies": policies})
    with pytest.raises(InvalidArgumentError, match="set dtype: bfloat16, or train adapters"):
        fit_batch(large, 80 * GB)


@pytest.mark.parametrize(
    ("model", "billions"),
    [
        ("Qwen/Qwen3-0.6B", 0.596),
        ("Qwen/Qwen3-1.7B", 1.72),
        ("Qwen/Qwen3-8B", 8.19),
        ("Qwen/Qwen2.5-Coder-1.5B-Instruct", 1.54),
        ("Qwen/Qwen2.5-7B-Instruct", 7.61),
        ("meta-llama/Llama-3.1-8B-Instruct", 8.03),
    ],
)
def test_shape_of_a_known_model_when_counted_then_has_its_parameters(
    model: str, billions: float
) -> None:
    shape = decoder_shape(model)
    assert shape is not None
    assert shape.num_parameters() / 1e9 == pytest.approx(billions, rel=0.01)
    assert decoder_shape("somebody/unknown") is None


@pytest.mark.parametrize("vocabulary", [32_000, 49_152, 151_936, 262_144])
def test_head_chunk_when_on_a_gpu_then_is_what_the_prediction_takes(vocabulary: int) -> None:
    chunk = tokens_per_chunk(vocabulary, on_cpu=False)
    assert 2048 <= chunk <= 8192
    assert head_chunk(vocabulary, 1 << 20) == chunk


def test_batch_when_a_spec_leaves_tokens_out_then_a_gpu_takes_as_many_as_fit() -> None:
    spec = load_spec(ROOT / "examples/math.yaml")
    policies = {
        name: policy.model_copy(update={"model": "Qwen/Qwen3-8B", "dtype": "bfloat16"})
        for name, policy in spec.policies.items()
    }
    free = spec.model_copy(update={"policies": policies, "batch": BatchSpec()})
    large, middle = fit_batch(free, 80 * GB), fit_batch(free, 48 * GB)
    assert 4096 < large.batch.budget <= 16_384
    assert large.batch.checkpoint_activations is False
    assert middle.batch.checkpoint_activations is True
    for fit, size in ((large, 80), (middle, 48)):
        assert fit.peak_bytes is not None
        assert fit.peak_bytes <= USABLE * size * GB
    told = free.model_copy(update={"batch": BatchSpec(tokens_per_row=512)})
    assert fit_batch(told, 80 * GB).batch.budget == 4096
    assert BatchSpec().budget == 4096
    assert "tokens_per_row" not in BatchSpec().model_dump()


def test_peak_when_full_weights_are_summed_exactly_then_holds_a_gradient_more_of_each_policy() -> (
    None
):
    spec = load_spec(ROOT / "examples/math.yaml")
    name, policy = next(iter(spec.policies.items()))
    full = policy.model_copy(update={"model": "Qwen/Qwen3-1.7B", "train": FULL})

    def peak(num_policies: int, ranks: int = 1, **batch: Any) -> float:
        policies = {f"{name}{i}": full for i in range(num_policies)}
        job = spec.model_copy(update={"policies": policies, "batch": BatchSpec(**batch)})
        found = trainer_peak(job, tokens=8192, checkpoint_activations=True, ranks=ranks)
        assert found is not None
        return found

    assert SMALL is not None
    gradient = 4.0 * SMALL.num_parameters()
    assert peak(1, gradient_sums="exact") - peak(1) == pytest.approx(gradient)
    assert peak(1, gradient_sums="in_turn") == peak(1) == peak(1, overlap=False)
    # Each has its sum while a round is played, and without overlap one after the other.
    assert peak(2, gradient_sums="exact") - peak(2) == pytest.approx(2 * gradient)
    assert peak(2) - peak(2, overlap=False) == pytest.approx(gradient)
    assert peak(2, gradient_sums="exact", overlap=False) - peak(2, overlap=False) == pytest.approx(
        gradient
    )
    assert peak(1, ranks=2, gradient_sums="exact") == peak(1, ranks=2)
    stays = full.model_copy(update={"frozen": True})
    beside = spec.model_copy(update={"policies": {"a": full, "b": stays}, "batch": BatchSpec()})
    # Its weights alone: no moments, no gradient, and no reference for a KL term.
    for overlap in (True, False):
        job = beside.model_copy(update={"batch": BatchSpec(overlap=overlap)})
        assert trainer_peak(job, tokens=8192, checkpoint_activations=True) == pytest.approx(
            peak(1) + 4 * SMALL.num_parameters()
        )
    job = spec.model_copy(
        update={"policies": {name: full}, "batch": BatchSpec(gradient_sums="exact")}
    )
    assert fit_batch(job.model_copy(update={"batch": BatchSpec()}), 42 * GB).peak_bytes
    with pytest.raises(InvalidArgumentError, match=r"set batch\.gradient_sums: in_turn"):
        fit_batch(job, 40 * GB)
