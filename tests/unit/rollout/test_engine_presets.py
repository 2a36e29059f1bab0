import pytest

from troupe.errors import InvalidArgumentError
from troupe.runtime.engines.presets import (
    OVERHEAD_BYTES,
    PRESETS,
    ModelShape,
    check_memory,
    check_preset,
    check_tp,
    find_preset,
    memory_plan,
    shape_of,
)

TOY = ModelShape(
    hidden=8, layers=2, heads=2, kv_heads=1, head_dim=4, intermediate=16, vocab=10, is_tied=True
)


def test_parameters_of_a_toy_are_those_counted_by_hand():
    # A block: q 8x8, k 4x8, v 4x8, o 8x8, gate 16x8, up 16x8, down 8x16, two norms of 8.
    block = 64 + 32 + 32 + 64 + 128 + 128 + 128 + 16
    assert block == 592
    assert TOY.num_parameters() == 80 + 2 * 592 + 8


def test_cache_and_adapter_of_a_toy_are_those_counted_by_hand():
    assert TOY.kv_bytes_per_token("bfloat16") == 2 * 2 * 1 * 4 * 2  # k and v, layers, head, bytes
    # Rank 2: A and B of every target: q 8+8, k 4+8, v 4+8, o 8+8, gate 24, up 24, down 24.
    assert TOY.lora_bytes(2, "float32") == 2 * 2 * (16 + 12 + 12 + 16 + 24 + 24 + 24) * 4


@pytest.mark.parametrize(
    ("model", "parameters"),
    [  # As the model cards' safetensors metadata counts them.
        ("Qwen/Qwen2.5-1.5B-Instruct", 1_543_714_304),
        ("Qwen/Qwen2.5-7B-Instruct", 7_615_616_512),
        ("Qwen/Qwen2.5-14B-Instruct", 14_770_033_664),
        ("Qwen/Qwen3-1.7B", 1_720_574_976),
        ("Qwen/Qwen3-8B", 8_190_735_360),
        ("meta-llama/Llama-3.1-8B-Instruct", 8_030_261_248),
    ],
)
def test_preset_has_the_parameters_of_its_model(model: str, parameters: int):
    assert PRESETS[model].shape.num_parameters() == parameters


def test_every_preset_fits_one_gpu_of_80_gb_with_its_slots_at_rank_32():
    for preset in PRESETS.values():
        plan = memory_plan(
            preset.shape,
            preset.dtype,
            lora_slots=preset.lora_slots,
            lora_rank=32,
            kv_tokens=preset.min_kv_tokens,
        )
        check_memory(preset.model, plan, int(80e9 * preset.mem_fraction))


def test_memory_of_qwen3_8b_is_the_sum_done_by_hand():
    preset = PRESETS["Qwen/Qwen3-8B"]
    plan = memory_plan(preset.shape, "bfloat16", lora_slots=4, lora_rank=16, kv_tokens=1000)
    assert plan.weights == 2 * 8_190_735_360
    # Per block: q 8192, k 5120, v 5120, o 8192, gate 16384, up 16384, down 16384 times rank 16.
    assert plan.adapters == 4 * 36 * 16 * 75_776 * 2
    assert plan.kv_cache == 1000 * 2 * 36 * 8 * 128 * 2
    assert plan.total == plan.weights + plan.adapters + plan.kv_cache + OVERHEAD_BYTES
    half = memory_plan(
        preset.shape, "bfloat16", lora_slots=4, lora_rank=16, kv_tokens=1000, tp_size=2
    )
    assert half.weights == 8_190_735_360


def test_cache_on_more_devices_than_key_value_heads_is_a_copy_of_one_head_on_each():
    shape = PRESETS["Qwen/Qwen2.5-1.5B-Instruct"].shape  # two key/value heads of 128
    whole, half, more = (
        memory_plan(shape, "bfloat16", lora_slots=0, lora_rank=0, kv_tokens=10, tp_size=tp).kv_cache
        for tp in (1, 2, 4)
    )
    assert (whole, half, more) == (10 * 2 * 28 * 2 * 128 * 2, whole // 2, whole // 2)


@pytest.mark.parametrize(
    ("model", "tp_size", "words"),
    [  # 12 and 28 heads, 2 and 4 key/value heads, 18944 = 2**9 * 37 columns
        ("Qwen/Qwen2.5-1.5B-Instruct", 8, "12 attention heads.*Use one of .1, 2, 4."),
        ("Qwen/Qwen2.5-7B-Instruct", 7, "18944 MLP columns and 4 key/value heads"),
        ("Qwen/Qwen2.5-14B-Instruct", 3, "40 attention heads"),
    ],
)
def test_model_that_cannot_be_split_is_refused_with_the_sizes_that_fit(
    model: str, tp_size: int, words: str
):
    with pytest.raises(InvalidArgumentError, match=words):
        check_tp(model, PRESETS[model].shape, tp_size)


@pytest.mark.parametrize("tp_size", [1, 2, 4])
def test_every_preset_can_be_split(tp_size: int):
    for preset in PRESETS.values():
        check_tp(preset.model, preset.shape, tp_size)


def test_model_that_does_not_fit_is_refused_with_the_sum():
    plan = memory_plan(
        PRESETS["Qwen/Qwen3-8B"].shape, "float32", lora_slots=0, lora_rank=0, kv_tokens=0
    )
    with pytest.raises(InvalidArgumentError, match=r"weights 30\.51 .* 24\.00 GiB are there"):
        check_memory("m", plan, 24 * 2**30)


@pytest.mark.parametrize("name", ["Qwen/Qwen3-8B", "/models/Qwen3-8B", "./qwen3-8b/"])
def test_preset_is_found_by_hub_id_and_by_folder(name: str):
    found = find_preset(name)
    assert found is not None
    assert found.model == "Qwen/Qwen3-8B"


def test_model_of_another_shape_than_its_name_is_refused():
    with pytest.raises(InvalidArgumentError, match="hidden is 8, not 4096"):
        check_preset("/models/Qwen3-8B", TOY)
    check_preset("/models/something", TOY)


def test_shape_is_read_from_a_config():
    config = {
        "model_type": "qwen3",
        "hidden_size": 8,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "head_dim": 4,
        "intermediate_size": 16,
        "vocab_size": 10,
        "tie_word_embeddings": True,
    }
    found = shape_of(config, "m")
    assert (found.kv_heads, found.head_dim, found.has_qk_norm) == (1, 4, True)
    with pytest.raises(InvalidArgumentError, match="type 'mamba'"):
        shape_of({**config, "model_type": "mamba"}, "m")
