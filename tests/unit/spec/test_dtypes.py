"""Which number format a policy gets on GPUs when its spec names none."""

from typing import Any

from troupe.spec import JobSpec, parse_spec
from troupe.spec.dtypes import submitted, with_dtypes


def _spec(**policies: dict[str, Any]) -> JobSpec:
    names = list(policies)
    return parse_spec(
        {
            "name": "formats",
            "steps": 1,
            "tasks_per_step": 1,
            "task": {"name": "tic_tac_toe"},
            "workflow": {"order": ["cross", "nought"], "max_turns": 1},
            "agents": {"cross": {"policy": names[0]}, "nought": {"policy": names[-1]}},
            "policies": policies,
        }
    )


def _formats(spec: JobSpec) -> list[str]:
    return [policy.dtype for policy in spec.policies.values()]


def test_dtype_when_left_out_then_a_gpu_has_bfloat16_and_the_choice_is_kept() -> None:
    spec = _spec(one={"model": "m"}, other={"model": "m", "dtype": "float32"})
    assert _formats(spec) == ["float32", "float32"]
    chosen = with_dtypes(spec)
    assert _formats(chosen) == ["bfloat16", "float32"]
    resumed = JobSpec.model_validate_json(chosen.model_dump_json())
    assert _formats(with_dtypes(resumed)) == ["bfloat16", "float32"]
    resumed = JobSpec.model_validate_json(spec.model_dump_json())  # a run folder of a CPU
    assert _formats(with_dtypes(resumed)) == ["float32", "float32"]


def test_dtype_when_a_past_version_names_none_then_is_that_of_its_policy() -> None:
    past = {"model": "m", "past": {"of": "one"}}
    assert _formats(with_dtypes(_spec(one={"model": "m"}, old=past))) == ["bfloat16", "bfloat16"]
    kept = _spec(one={"model": "m", "dtype": "float32"}, old=past)
    assert _formats(with_dtypes(kept)) == ["float32", "float32"]


def test_dtype_when_left_out_then_a_submitted_document_leaves_it_to_the_router() -> None:
    spec = _spec(one={"model": "m"}, other={"model": "m", "dtype": "float32"})
    received = parse_spec(submitted(spec))
    assert received == spec
    assert _formats(with_dtypes(received)) == ["bfloat16", "float32"]
    assert submitted(with_dtypes(spec)) == with_dtypes(spec).model_dump(mode="json")
