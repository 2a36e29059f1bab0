"""What `troupe validate --gpu-gb` says beside the size."""

from pathlib import Path

from troupe.cli.spec_commands import predicted
from troupe.spec import load_spec, parse_spec

ROOT = Path(__file__).parents[3]


def test_validate_when_a_policy_is_in_float32_then_says_what_a_gpu_wants() -> None:
    spec = load_spec(ROOT / "examples/math.yaml")
    assert "float32" not in predicted(spec, 24, 1)
    policies = {n: p.model_copy(update={"dtype": "float32"}) for n, p in spec.policies.items()}
    said = predicted(spec.model_copy(update={"policies": policies}), 48, 1)
    assert "tool, reasoner in float32" in said
    assert "dtype: bfloat16" in said


def test_validate_when_no_dtype_is_named_then_predicts_what_a_gpu_would_get() -> None:
    spec = load_spec(ROOT / "examples/math.yaml")
    body = spec.model_dump(mode="json")
    for policy in body["policies"].values():
        del policy["dtype"]
    assert predicted(parse_spec(body), 24, 1) == predicted(spec, 24, 1)
