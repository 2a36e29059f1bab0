"""Models with experts and tensor parallelism are refused by name when a spec is checked."""

from pathlib import Path
from typing import Any

import pytest
from transformers import (
    DeepseekV3Config,
    GptOssConfig,
    MixtralConfig,
    PretrainedConfig,
    Qwen2Config,
    Qwen3Config,
    Qwen3MoeConfig,
)

from troupe.cli.spec_commands import validate
from troupe.spec import SpecInvalidError, parse_spec
from troupe.spec.experts import experts_issues


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
    [issue] = experts_issues(parse_spec(_document(tmp_path)))
    assert issue.pointer == "/policies/p/model"
    assert f"({kind}) has" in issue.message
    assert "experts are refused" in issue.message


@pytest.mark.parametrize("config", [Qwen3Config(), Qwen2Config()])
def test_dense_model_when_a_policy_names_it_then_is_not_refused(
    tmp_path: Path, config: PretrainedConfig
) -> None:
    config.save_pretrained(tmp_path)
    assert experts_issues(parse_spec(_document(tmp_path))) == []
    assert experts_issues(parse_spec(_document(tmp_path / "nowhere"))) == []


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
