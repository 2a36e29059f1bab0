"""What the trainer does not compute is refused by name when a spec is checked."""

from pathlib import Path
from typing import Any

import pytest
from transformers import (
    DeepseekV3Config,
    Gemma2Config,
    Gemma3Config,
    GptOssConfig,
    GraniteConfig,
    MistralConfig,
    MixtralConfig,
    PretrainedConfig,
    Qwen2_5_VLConfig,
    Qwen2Config,
    Qwen3Config,
    Qwen3MoeConfig,
)

from troupe.cli.spec_commands import validate
from troupe.spec import SpecInvalidError, parse_spec
from troupe.spec.architecture import architecture_issues, architecture_refusal


def _document(model: Path, **more: Any) -> dict[str, Any]:
    return {
        "name": "t",
        "steps": 1,
        "task": {"name": "plan_path"},
        "workflow": {"order": ["tool", "planner"]},
        "agents": {"tool": {"policy": "p"}, "planner": {"policy": "p"}},
        "policies": {"p": {"model": str(model)}},
        **more,
    }


@pytest.mark.parametrize(
    ("config", "kind"),
    [
        (Qwen3MoeConfig(num_experts=128), "qwen3_moe"),
        (MixtralConfig(num_local_experts=8), "mixtral"),
        (GptOssConfig(), "gpt_oss"),
        (DeepseekV3Config(), "deepseek_v3"),
    ],
)
def test_model_with_experts_when_a_policy_names_it_then_is_refused_by_name(
    tmp_path: Path, config: PretrainedConfig, kind: str
) -> None:
    config.save_pretrained(tmp_path)
    [issue] = architecture_issues(parse_spec(_document(tmp_path)))
    assert issue.pointer == "/policies/p/model"
    assert f"({kind}) has" in issue.message
    assert "experts are refused" in issue.message


@pytest.mark.parametrize(
    ("config", "why"),
    [
        (GraniteConfig(logits_scaling=8.0), "(granite) scales or caps its logits (logits_scaling"),
        (Gemma2Config(), "(gemma2) scales or caps its logits (final_logit_softcapping is 30.0)"),
        (MistralConfig(sliding_window=4096), "4096 tokens at most, and its context has 131072"),
        (Gemma3Config(), "(gemma3) has layers that attend to 4096 tokens at most"),
    ],
)
def test_model_when_its_logits_or_attention_are_not_computed_then_is_refused_by_name(
    tmp_path: Path, config: PretrainedConfig, why: str
) -> None:
    config.save_pretrained(tmp_path)
    [issue] = architecture_issues(parse_spec(_document(tmp_path)))
    assert issue.pointer == "/policies/p/model"
    assert why in issue.message


@pytest.mark.parametrize(
    ("config", "is_refused"),
    [
        ({"sliding_window": 4096, "max_position_embeddings": 32768}, True),
        ({"sliding_window": 4096}, True),  # of a context that nobody knows
        ({"sliding_window": 32768, "max_position_embeddings": 32768}, False),
        ({"sliding_window": None}, False),
        ({"sliding_window": 4096, "use_sliding_window": False}, False),
        ({"sliding_window": 4096, "layer_types": ["full_attention"]}, False),
        ({"sliding_window": 4096, "max_window_layers": 28, "num_hidden_layers": 28}, False),
        ({"sliding_window": 4096, "max_window_layers": 21, "num_hidden_layers": 28}, True),
        ({"sliding_window": 4096, "layer_types": [None]}, False),
        ({"sliding_window": 4096, "layer_types": ["full_attention", "sliding_attention"]}, True),
        ({"attention_chunk_size": 8192, "layer_types": ["chunked_attention"]}, True),
        ({"text_config": {"sliding_window": 1024}, "vision_config": {}}, True),
        ({"text_config": {"hidden_size": 64}, "vision_config": {"window_size": 112}}, False),
        ({"text_config": {"final_logit_softcapping": 30.0}}, True),
        ({"final_logit_softcapping": None, "logits_scaling": 1, "logit_scale": None}, False),
    ],
)
def test_config_when_read_as_published_then_only_what_is_used_refuses_it(
    config: dict[str, object], is_refused: bool
) -> None:
    assert (architecture_refusal("m", config) is not None) == is_refused


@pytest.mark.parametrize("config", [Qwen3Config(), Qwen2Config(), Qwen2_5_VLConfig()])
def test_dense_model_when_a_policy_names_it_then_is_not_refused(
    tmp_path: Path, config: PretrainedConfig
) -> None:
    config.save_pretrained(tmp_path)
    assert architecture_issues(parse_spec(_document(tmp_path))) == []
    assert architecture_issues(parse_spec(_document(tmp_path / "nowhere"))) == []


def test_validate_when_a_model_has_experts_then_says_which(tmp_path: Path) -> None:
    Qwen3MoeConfig(num_experts=16).save_pretrained(tmp_path / "moe")
    path = tmp_path / "job.yaml"
    path.write_text(str(_document(tmp_path / "moe")), encoding="utf-8")  # JSON enough for YAML
    with pytest.raises(SpecInvalidError, match=r"/policies/p/model: .*\(qwen3_moe\) has 16"):
        validate(path)


def test_tensor_parallelism_when_a_spec_asks_for_it_then_is_refused_by_field(
    tmp_path: Path,
) -> None:
    with pytest.raises(SpecInvalidError, match="/trainer/tensor_parallel"):
        parse_spec(_document(tmp_path, trainer={"tensor_parallel": 2}))


@pytest.mark.parametrize("name", ["lm_head", "embed_tokens", "model.embed_tokens"])
def test_spec_when_targets_name_the_output_head_then_it_is_refused_by_field(
    tmp_path: Path, name: str
) -> None:
    train = {"kind": "lora", "targets": ["q_proj", name]}
    document = _document(tmp_path, policies={"p": {"model": str(tmp_path), "train": train}})
    [issue] = architecture_issues(parse_spec(document))  # an earlier version's run can be read
    assert issue.pointer == "/policies/p/train/targets"
    assert f"'{name}' gets no adapter" in issue.message
    path = tmp_path / "job.yaml"
    path.write_text(str(document), encoding="utf-8")
    with pytest.raises(SpecInvalidError, match="/policies/p/train/targets: "):
        validate(path)


@pytest.mark.parametrize(
    "train",
    [
        {"kind": "lora", "targets": "all-linear"},
        {"kind": "lora", "targets": ["q_proj", "self_attn.v_proj"]},
        {"kind": "full"},
    ],
)
def test_spec_when_targets_are_layers_of_blocks_then_it_is_not_refused(
    tmp_path: Path, train: dict[str, Any]
) -> None:
    document = _document(tmp_path, policies={"p": {"model": str(tmp_path), "train": train}})
    assert architecture_issues(parse_spec(document)) == []


def test_spec_when_it_names_modules_to_save_then_it_is_refused_by_field(tmp_path: Path) -> None:
    train = {"kind": "lora", "modules_to_save": ["lm_head"]}
    with pytest.raises(SpecInvalidError, match=r"/policies/p/train/.*modules_to_save"):
        parse_spec(_document(tmp_path, policies={"p": {"model": "m", "train": train}}))
