"""`troupe eval RUN_OR_SPEC --set`: the evaluation's job has what was set."""

import json
from pathlib import Path

import pytest

from troupe.cli.eval_commands import evaluation_spec
from troupe.spec.load import load_spec

DEMO = Path(__file__).parents[3] / "examples" / "demo.yaml"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run folder, as an evaluation reads it."""
    document = load_spec(DEMO).model_dump(mode="json")
    (tmp_path / "spec.json").write_text(json.dumps(document))
    for name in document["policies"]:
        merged = tmp_path / "policies" / name / "merged"
        merged.mkdir(parents=True)
        (merged / "config.json").write_text("{}")
    return tmp_path


@pytest.mark.parametrize("is_run", [True, False])
def test_eval_when_a_field_is_set_then_a_run_and_a_spec_are_evaluated_with_it(
    run: Path, is_run: bool
) -> None:
    changes = ["sampling.temperature=0", "limits.generate_timeout_s=7"]
    spec = evaluation_spec(run if is_run else DEMO, 3, "test", changes)
    assert (spec.steps, spec.eval.num_tasks, spec.eval.split) == (0, 3, "test")
    assert (spec.sampling.temperature, spec.limits.generate_timeout_s) == (0.0, 7.0)
    models = [policy.model for policy in spec.policies.values()]
    assert all(("merged" in model) == is_run for model in models)
