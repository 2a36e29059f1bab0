import copy
import json
from pathlib import Path

import pytest

from troupe.spec import JobSpec, SpecInvalidError, load_spec, parse_spec

GOOD = {
    "name": "demo",
    "steps": 3,
    "task": {"name": "plan_path"},
    "workflow": {"order": ["tool", "planner"]},
    "agents": {"tool": {"policy": "shared"}, "planner": {"policy": "shared"}},
    "policies": {"shared": {"model": "./m"}},
}


def issues(change) -> dict[str, str]:
    document = copy.deepcopy(GOOD)
    change(document)
    with pytest.raises(SpecInvalidError) as caught:
        parse_spec(document)
    return {i.pointer: i.message for i in caught.value.issues}


def test_spec_when_good_then_defaults_are_filled():
    spec = parse_spec(GOOD)
    assert spec.algorithm.group_size == 8
    assert spec.policies["shared"].train.kind == "lora"
    assert parse_spec(spec.model_dump(mode="json")) == spec


def test_spec_when_field_is_misspelt_then_pointer_and_suggestion():
    found = issues(lambda d: d.update(task_per_step=3))
    assert "did you mean 'tasks_per_step'" in found["/task_per_step"]


def test_spec_when_nested_field_is_misspelt_then_known_fields_of_that_object_are_suggested():
    found = issues(lambda d: d["policies"]["shared"].update(train={"kind": "lora", "rnk": 3}))
    assert "did you mean 'rank'" in found["/policies/shared/train/rnk"]
    found = issues(lambda d: d["policies"]["shared"].update(replica=3))
    assert "did you mean 'replicas'" in found["/policies/shared/replica"]


def test_spec_when_agent_maps_to_no_policy_then_pointer_names_the_agent():
    found = issues(lambda d: d["agents"]["tool"].update(policy="shard"))
    assert "did you mean 'shared'" in found["/agents/tool/policy"]


def test_spec_when_group_size_is_one_then_refused():
    assert "/algorithm/group_size" in issues(lambda d: d.update(algorithm={"group_size": 0}))


def test_spec_when_agent_never_acts_then_refused():
    assert "/agents/tool" in issues(lambda d: d["workflow"].update(order=["planner"]))


def test_spec_when_workflow_names_unknown_agent_then_refused():
    found = issues(lambda d: d["workflow"].update(order=["tool", "planer", "planner"]))
    assert "did you mean 'planner'" in found["/workflow/order/1"]


def test_spec_when_policy_is_unused_then_is_checked_and_left_out():
    assert "/policies/other/modl" in issues(lambda d: d["policies"].update(other={"modl": "m"}))
    more = {**GOOD, "policies": {**GOOD["policies"], "other": {"model": "m"}}}
    assert parse_spec(more) == parse_spec(GOOD)
    assert "/policies" in issues(
        lambda d: d["policies"].update(shared={"model": "m", "frozen": True}, other={"model": "m"})
    )


def test_spec_when_an_agent_names_no_policy_then_the_others_are_suggested():
    def change(document):
        document["policies"]["other"] = {"model": "m"}
        document["agents"]["tool"]["policy"] = "othr"

    assert "did you mean 'other'" in issues(change)["/agents/tool/policy"]


@pytest.mark.parametrize("field,value", [("temperature", 0), ("top_p", 0.9), ("top_k", 20)])
def test_spec_when_training_sampling_is_truncated_then_refused(field, value):
    assert f"/sampling/{field}" in issues(lambda d: d.update(sampling={field: value}))


@pytest.mark.parametrize("field,value", [("temperature", 0), ("top_p", 0.9), ("top_k", 20)])
@pytest.mark.parametrize("still", [{"frozen": True}, {"past": {"of": "shared"}}])
def test_spec_when_an_agents_policy_never_learns_then_it_may_sample_in_any_way(field, value, still):
    document = copy.deepcopy(GOOD)
    document["policies"]["partner"] = {"model": "m", **still}
    document["agents"]["tool"] = {"policy": "partner", "sampling": {field: value}}
    assert getattr(parse_spec(document).sampling_for("tool"), field) == value
    document["agents"]["planner"]["sampling"] = document["agents"]["tool"]["sampling"]
    with pytest.raises(SpecInvalidError) as caught:
        parse_spec(document)
    assert [i.pointer for i in caught.value.issues] == [f"/agents/planner/sampling/{field}"]


@pytest.mark.parametrize("field,value", [("temperature", 1e-40), ("top_k", 2**31)])
def test_spec_when_no_engine_can_sample_so_then_evaluation_may_not_either(field, value):
    assert f"/eval/sampling/{field}" in issues(
        lambda d: d.update(eval={"sampling": {field: value}})
    )


def test_spec_when_required_field_is_missing_then_pointer_to_it():
    assert issues(lambda d: d.pop("steps")) == {"/steps": "this field is required"}


def test_spec_when_document_is_not_a_mapping_then_said():
    with pytest.raises(SpecInvalidError, match="mapping"):
        parse_spec([1])


def test_load_spec_when_file_is_absent_or_not_yaml_then_named(tmp_path: Path):
    with pytest.raises(SpecInvalidError, match=r"nothere\.yaml"):
        load_spec(tmp_path / "nothere.yaml")
    bad = tmp_path / "bad.yaml"
    bad.write_text("a: [")
    with pytest.raises(SpecInvalidError, match="not valid YAML"):
        load_spec(bad)


def test_load_spec_when_the_path_is_a_text_then_home_is_expanded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "job.json").write_text(json.dumps(GOOD))
    assert load_spec("~/job.json") == load_spec(str(tmp_path / "job.json")) == parse_spec(GOOD)


def test_sampling_when_evaluating_then_override_keeps_the_agents_token_limit():
    document = copy.deepcopy(GOOD)
    document["agents"]["tool"]["sampling"] = {"max_new_tokens": 5}
    document["eval"] = {"sampling": {"temperature": 0}}
    spec = JobSpec.model_validate(document)
    assert spec.sampling_for("tool", evaluate=True).max_new_tokens == 5
    assert spec.sampling_for("tool", evaluate=True).temperature == 0
    assert spec.sampling_for("planner").temperature == 1


def test_sampling_when_an_agent_sets_some_fields_then_the_others_are_the_jobs() -> None:
    document = copy.deepcopy(GOOD)
    document["sampling"] = {"temperature": 0.7, "max_new_tokens": 16, "stop": ["END"]}
    document["agents"]["tool"]["sampling"] = {"temperature": 1.2}
    spec = JobSpec.model_validate(document)
    for read in (spec, JobSpec.model_validate_json(spec.model_dump_json())):
        own = read.sampling_for("tool")
        assert (own.temperature, own.max_new_tokens, own.stop) == (1.2, 16, ["END"])
        assert read.sampling_for("planner") == read.sampling
    # A job that is stored says all of it: the same whatever reads it.
    stored = spec.model_dump(mode="json")
    assert stored["agents"]["tool"]["sampling"]["max_new_tokens"] == 16


def test_sampling_when_the_jobs_is_wrong_then_agents_who_inherit_it_are_not_blamed() -> None:
    found = issues(
        lambda d: (
            d.update(sampling={"top_p": 0.5}),
            d["agents"]["tool"].update(sampling={"temperature": 0.0}),
        )
    )
    assert found.keys() == {"/sampling/top_p", "/agents/tool/sampling/temperature"}


def test_sampling_when_evaluation_sets_some_fields_then_the_others_are_the_agents() -> None:
    document = copy.deepcopy(GOOD)
    document["sampling"] = {"max_new_tokens": 16, "stop": ["END"]}
    document["eval"] = {"sampling": {"temperature": 0.0, "max_new_tokens": 64}}
    spec = JobSpec.model_validate(document)
    for read in (spec, JobSpec.model_validate_json(spec.model_dump_json())):
        evaluated = read.sampling_for("tool", evaluate=True)
        assert (evaluated.temperature, evaluated.max_new_tokens) == (0, 64)
        assert evaluated.stop == ["END"]
        assert read.sampling_for("tool") == read.sampling
    document["eval"] = {"sampling": {"stop": []}}
    assert JobSpec.model_validate(document).sampling_for("tool", evaluate=True).stop == []


def test_sampling_when_an_earlier_version_wrote_the_spec_then_limit_and_stop_are_the_agents() -> (
    None
):
    document = copy.deepcopy(GOOD)
    document["sampling"] = {"max_new_tokens": 16, "stop": ["END"]}
    every = {"temperature": 0.0, "top_p": 0.9, "top_k": 5, "max_new_tokens": 256, "stop": []}
    document["eval"] = {"sampling": every}
    evaluated = JobSpec.model_validate(document).sampling_for("tool", evaluate=True)
    assert evaluated.model_dump() == every | {"max_new_tokens": 16, "stop": ["END"]}
    document["eval"] = {"sampling": every | {"max_new_tokens": 99}}
    evaluated = JobSpec.model_validate(document).sampling_for("tool", evaluate=True)
    assert (evaluated.max_new_tokens, evaluated.stop) == (99, [])
