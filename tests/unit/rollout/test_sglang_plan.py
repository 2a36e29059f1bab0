"""Which servers a job gets, with which command line, and what is refused before anything loads."""

import argparse
import json
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pytest
import torch
from safetensors.torch import load_file, save_file

from benchmarks.random_vision_model import save_vision_tokenizer, vision_config
from troupe.errors import InvalidArgumentError
from troupe.runtime.engines.engine import StagedWeights
from troupe.runtime.engines.presets import LORA_TARGETS, PRESETS, ModelShape
from troupe.runtime.weights import digest_of_sums, file_tensors, sums_of
from troupe.spec.policy import FullSpec, LoraSpec, PolicySpec
from troupe.spec.tower import KNOWN
from troupe.vision.model import vision_model_of
from troupe.vision.names import served_name
from troupe_rollout.engines.sglang.command import LoraPlan, ServerPlan, server_argv
from troupe_rollout.engines.sglang.command import server_environment as environment
from troupe_rollout.engines.sglang.environment import Machine, look_at_machine
from troupe_rollout.engines.sglang.files import keep_full, lora_targets
from troupe_rollout.engines.sglang.model import SglangModel, read_base
from troupe_rollout.engines.sglang.plan import plan_servers
from troupe_rollout.engines.sglang.settings import SglangSettings, load_settings

SHAPE = ModelShape(64, 2, 4, 2, 16, 128, 100, True)
CPU = Machine("cpu", 8 * 2**30)
PREPROCESSOR: dict[str, Any] = {
    "patch_size": 14,
    "temporal_patch_size": 2,
    "merge_size": 2,
    "min_pixels": 784,
    "max_pixels": 50176,
    "image_mean": [0.5] * 3,
    "image_std": [0.5] * 3,
}
VISION = vision_model_of("m", vision_config("qwen2_5_vl").to_dict(), PREPROCESSOR)


def base(name: str = "m", shape: ModelShape = SHAPE) -> SglangModel:
    return SglangModel(name, Path("/models") / name, None, shape, 256, (2,), {})


def lora(
    model: str = "m", rank: int = 4, dtype: Literal["float32", "bfloat16"] = "float32", **more: Any
) -> PolicySpec:
    return PolicySpec(model=model, train=LoraSpec(rank=rank, alpha=8, **more), dtype=dtype)


def full(model: str = "m") -> PolicySpec:
    return PolicySpec(model=model, train=FullSpec())


def plan(policies: dict[str, PolicySpec], machine: Machine = CPU, **settings: Any):
    bases = {name: base(spec.model) for name, spec in policies.items()}
    return plan_servers(SglangSettings(**settings), machine, policies, bases)


def test_adapters_of_one_base_share_a_server_with_slots_for_all_their_versions():
    [group] = plan({"coder": lora(rank=4), "tester": lora(rank=8)}, max_versions=3)
    assert group.policies == ("coder", "tester")
    assert group.plan.lora == LoraPlan(rank=8, targets=LORA_TARGETS, slots=6, loaded=19)


def test_other_bases_and_full_weights_get_servers_of_their_own():
    groups = plan({"a": lora(), "b": lora("other"), "c": full(), "d": full()})
    assert [group.policies for group in groups] == [("a",), ("b",), ("c",), ("d",)]
    assert groups[2].plan.lora is None


def test_more_policies_than_slots_are_refused():
    with pytest.raises(InvalidArgumentError, match=r"2 LoRA policies \(a, b\) .* 1 adapter slots"):
        plan({"a": lora(), "b": lora()}, lora_slots=1)


def test_rank_beyond_the_slots_is_refused():
    with pytest.raises(InvalidArgumentError, match="rank 8 and TROUPE_ROLLOUT_SGLANG_LORA_RANK"):
        plan({"a": lora(rank=8)}, lora_rank=4)


def test_adapters_with_data_parallel_servers_are_refused():
    with pytest.raises(InvalidArgumentError, match="DP_SIZE above 1"):
        plan({"a": lora()}, dp_size=2)


def test_two_servers_at_one_url_are_refused():
    with pytest.raises(InvalidArgumentError, match="need 2"):
        plan({"a": full(), "b": full()}, url="http://127.0.0.1:1")


def test_mlp_that_sglang_would_pad_on_a_cpu_is_refused_with_adapters_only():
    odd = ModelShape(64, 2, 4, 2, 16, 168, 100, True)
    settings = SglangSettings()
    with pytest.raises(InvalidArgumentError, match="multiple of 32"):
        plan_servers(settings, CPU, {"a": lora()}, {"a": base(shape=odd)})
    assert plan_servers(settings, CPU, {"a": full()}, {"a": base(shape=odd)})
    on_gpu = {"a": lora(dtype="bfloat16")}
    assert plan_servers(settings, Machine("cuda", 2**34), on_gpu, {"a": base(shape=odd)})


def test_model_that_does_not_fit_is_refused_before_anything_is_loaded():
    shape = PRESETS["Qwen/Qwen3-8B"].shape
    spec = {"a": lora("Qwen/Qwen3-8B", dtype="bfloat16")}
    with pytest.raises(InvalidArgumentError, match="does not fit"):
        plan_servers(
            SglangSettings(), Machine("cuda", 16 * 10**9), spec, {"a": base("Qwen3-8B", shape)}
        )


@pytest.mark.parametrize(
    ("targets", "words"),
    [
        (["v_proj"], "split the fused"),
        (["q_proj", "k_proj"], "split the fused"),
        (["up_proj"], "needs gate_proj"),
        (["lm_head"], "not served"),
    ],
)
def test_target_sets_that_sglang_would_silently_lose_are_refused(targets: list[str], words: str):
    with pytest.raises(InvalidArgumentError, match=words):
        lora_targets(LoraSpec(targets=targets))


def test_target_sets_that_it_serves_are_taken():
    assert lora_targets(LoraSpec()) == LORA_TARGETS
    assert lora_targets(LoraSpec(targets=["v_proj", "q_proj"])) == ("q_proj", "v_proj")
    assert lora_targets(LoraSpec(targets=["gate_proj", "down_proj"])) == ("gate_proj", "down_proj")


def test_command_line_is_on_loopback_with_room_for_adapters():
    server = ServerPlan(Path("/m"), "float32", "cpu", 256, LoraPlan(8, ("q_proj", "v_proj"), 4, 13))
    settings = SglangSettings(extra_flags="--chunked-prefill-size 64", max_total_tokens=4096)
    argv = server_argv(settings, server, python="py", port=4711)
    line = " ".join(argv)
    assert argv[0] == "py"
    assert "--load-format safetensors" in line
    assert "--attention-backend torch_native" in line
    assert "--max-total-tokens 4096" in line
    assert "--context-length 263" in line
    assert "--sampling-mask-max-tokens 8192" in line
    assert "--watchdog-timeout" not in line
    assert "--max-lora-rank 8 --max-loras-per-batch 5 --max-loaded-loras 13" in line
    assert "--lora-target-modules q_proj v_proj --chunked-prefill-size 64" in line
    assert line.endswith(" --host 127.0.0.1 --port 4711")


@pytest.mark.parametrize("flags", ["--host 0.0.0.0", "--log-requests --port=80", "--hos ::"])
def test_command_line_when_extra_flags_name_an_address_then_loopback_wins(flags: str):
    server = ServerPlan(Path("/m"), "float32", "cpu", 256, None)
    argv = server_argv(SglangSettings(extra_flags=flags), server, python="py", port=4711)
    parser = argparse.ArgumentParser()
    parser.add_argument("--host")
    parser.add_argument("--port", type=int)
    found, _ = parser.parse_known_args(argv)
    assert (found.host, found.port) == ("127.0.0.1", 4711)


def test_command_line_for_a_gpu_leaves_the_backends_to_sglang():
    server = ServerPlan(Path("/m"), "bfloat16", "cuda", 256, None, mem_fraction=0.8)
    line = " ".join(server_argv(SglangSettings(tp_size=2), server, python="py", port=1))
    assert "--tp-size 2" in line
    assert "--mem-fraction-static 0.8" in line
    assert "--watchdog-timeout 120" in line
    assert "--attention-backend" not in line
    assert "lora" not in line


@pytest.mark.parametrize(
    ("device", "adapters", "flags"),
    [
        ("cuda", LoraPlan(8, ("q_proj",), 4, 13), ["memory-saver", "weights-cpu-backup"]),
        ("cuda", None, ["memory-saver"]),
        ("cpu", None, []),
    ],
)
def test_command_line_when_the_device_is_shared_then_memory_can_be_given_back(
    device: str, adapters: LoraPlan | None, flags: list[str]
):
    server = ServerPlan(Path("/m"), "bfloat16", device, 256, adapters, is_colocated=True)
    argv = server_argv(SglangSettings(colocated=True), server, python="py", port=1)
    found = [flag for flag in ("memory-saver", "weights-cpu-backup") if f"--enable-{flag}" in argv]
    assert found == flags
    has_gpu = device == "cuda"
    assert ("--disable-prefill-cuda-graph" in argv) == has_gpu
    told = environment(SglangSettings(colocated=True), server, {})
    assert ("SGLANG_MEMORY_SAVER_CUDA_GRAPH" in told) == has_gpu
    alone = replace(server, is_colocated=False)
    assert "SGLANG_MEMORY_SAVER_CUDA_GRAPH" not in environment(SglangSettings(), alone, {})


@pytest.mark.parametrize("more", [{"tp_size": 2}, {"url": "http://127.0.0.1:1"}])
def test_settings_when_the_shared_device_is_not_one_gpu_then_they_are_refused(more: dict[str, Any]):
    with pytest.raises(ValueError, match="one GPU"):
        SglangSettings(colocated=True, **more)


@pytest.mark.parametrize(("colocated", "available"), [(False, 10), (True, 80)])
async def test_machine_when_the_trainer_is_on_the_shared_gpu_then_its_whole_memory_counts(
    tmp_path: Path, colocated: bool, available: int
) -> None:
    python = tmp_path / "python"
    python.write_text("""#!/bin/sh\necho '{"version": "v", "free": [10], "total": [80]}'\n""")
    python.chmod(0o755)
    settings = SglangSettings(python=str(python), version="v", colocated=colocated)
    assert await look_at_machine(settings) == Machine("cuda", available)


async def test_machine_when_it_has_gpus_then_its_nccl_is_told(tmp_path: Path) -> None:
    python = tmp_path / "python"
    answer = '{"version": "v", "free": [10], "total": [80], "nccl": "2.30.7"}'
    python.write_text(f"#!/bin/sh\necho '{answer}'\n")
    python.chmod(0o755)
    machine = await look_at_machine(SglangSettings(python=str(python), version="v"))
    assert machine == Machine("cuda", 10, "2.30.7")


def test_environment_of_the_server_has_none_of_our_settings():
    server = ServerPlan(Path("/m"), "float32", "cpu", 256, None)
    inherited = {"PATH": "/bin", "PYTHONPATH": "/ours", "TROUPE_ROLLOUT_ENGINE": "sglang"}
    found = environment(SglangSettings(tp_size=2, threads=1), server, inherited)
    assert found["PATH"] == "/bin"
    assert "PYTHONPATH" not in found
    assert "TROUPE_ROLLOUT_ENGINE" not in found
    assert found["OMP_NUM_THREADS"] == "1"
    assert found["SGLANG_CPU_OMP_THREADS_BIND"].count("|") == 1


@pytest.mark.parametrize(
    ("name", "value"),
    [("URL", "http://10.0.0.1:3000"), ("TP_SIZE", "0"), ("MEM_FRACTION", "1.5")],
)
def test_wrong_setting_names_its_variable(monkeypatch: pytest.MonkeyPatch, name: str, value: str):
    monkeypatch.setenv(f"TROUPE_ROLLOUT_SGLANG_{name}", value)
    with pytest.raises(InvalidArgumentError, match="settings of engine 'sglang' are wrong"):
        load_settings()


def test_plan_when_an_adapter_is_of_the_vision_tower_then_refused_by_name():
    with pytest.raises(InvalidArgumentError, match="adapters to the language model alone"):
        plan({"a": lora(vision=True), "b": lora()})


def test_server_when_a_model_sees_then_its_flags_and_its_memory_are_of_images():
    tower = KNOWN["Qwen2.5-VL-7B"]
    sees = replace(base(), vision=VISION, tower=tower)
    [group] = plan_servers(SglangSettings(), CPU, {"a": full()}, {"a": sees})
    argv = server_argv(SglangSettings(), group.plan, python="python", port=1)
    assert "--enable-precise-embedding-interpolation" in argv
    assert argv[argv.index("--mm-preprocess-cache-size-mb") + 1] == "256"
    assert environment(SglangSettings(), group.plan, {})["SGLANG_VLM_CACHE_SIZE_MB"] == "0"
    [adapted] = plan_servers(SglangSettings(), CPU, {"a": lora()}, {"a": sees})
    assert "SGLANG_VLM_CACHE_SIZE_MB" not in environment(SglangSettings(), adapted.plan, {})
    [text] = plan_servers(SglangSettings(), CPU, {"a": full()}, {"a": base()})
    assert "--mm-preprocess-cache-size-mb" not in server_argv(
        SglangSettings(), text.plan, python="python", port=1
    )
    small = Machine("cpu", 2 * 2**30)
    with pytest.raises(InvalidArgumentError, match=r"weights 2\.5"):
        plan_servers(SglangSettings(), small, {"a": full()}, {"a": sees})


def test_plan_when_a_model_sees_and_the_server_is_not_ours_then_refused_by_name():
    settings = SglangSettings(url="http://127.0.0.1:1")
    assert plan_servers(settings, CPU, {"a": full()}, {"a": base()})
    with pytest.raises(InvalidArgumentError, match=r"'m' takes images.* TROUPE_ROLLOUT_SGLANG_URL"):
        plan_servers(settings, CPU, {"a": full()}, {"a": replace(base(), vision=VISION)})


def test_read_base_when_a_model_sees_then_its_tensors_have_the_trainers_names(tmp_path: Path):
    config = vision_config("qwen2_5_vl").to_dict()
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(PREPROCESSOR))
    save_vision_tokenizer(tmp_path)
    names = ("model.norm.weight", "visual.patch_embed.proj.weight", "lm_head.weight")
    save_file({name: torch.zeros(2) for name in names}, tmp_path / "model.safetensors")
    found = read_base(PolicySpec(model=str(tmp_path)))
    assert found.tensors.keys() == {
        "model.language_model.norm.weight",
        "model.visual.patch_embed.proj.weight",
        "lm_head.weight",
    }
    assert {served_name(name) for name in found.tensors} == set(names)
    assert (found.context_length, found.shape.vocab) == (512, 96)
    assert found.vision is not None and found.tower is not None


def test_full_weights_when_a_model_sees_then_kept_under_the_loaders_names(tmp_path: Path):
    sent = {"model.language_model.norm.weight": torch.ones(2), "model.visual.b": torch.zeros(3)}
    save_file(sent, tmp_path / "sent")
    sums = sums_of(file_tensors(tmp_path / "sent"))
    announced = {tensor.name: tensor.digest for tensor in sums}
    (tmp_path / "config.json").write_text("{}")
    sees = replace(base(), vision=VISION, folder=tmp_path)
    weights = StagedWeights("p", 1, "full", tmp_path / "sent", "", announced)
    digest = keep_full(sees, weights, tmp_path / "kept")
    assert digest == digest_of_sums(sums)
    kept = load_file(tmp_path / "kept" / "model.safetensors")
    assert {name: t.tolist() for name, t in kept.items()} == {
        "model.norm.weight": [1.0, 1.0],
        "visual.b": [0.0, 0.0, 0.0],
    }


def test_read_base_when_a_model_sees_in_an_unknown_way_then_refused_by_name(tmp_path: Path):
    (tmp_path / "config.json").write_text('{"model_type": "llava", "vision_config": {}}')
    with pytest.raises(InvalidArgumentError, match="type 'llava'; known are qwen2_5_vl"):
        read_base(PolicySpec(model=str(tmp_path)))
