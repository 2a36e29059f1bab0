"""docs/coming-from.md names what exists: fields of a job spec, arguments, examples."""

import inspect
import re
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter

import troupe
from troupe import plugins
from troupe.spec import JobSpec
from troupe.training.job import TrainingOptions

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "coming-from.md").read_text("utf-8")
ROWS = re.findall(r"^\| (.+) \| (.+) \|$", PAGE, flags=re.MULTILINE)
NAME = re.compile(r"[a-z_]+(\.([a-z_]+|\*))*(=.*)?")
ARGUMENTS = {field.name for field in fields(TrainingOptions)} | set(
    inspect.signature(troupe.train).parameters
)
TRL_OPTIONS = (
    "beta",
    "chat_template_kwargs",
    "delta",
    "entropy_coef",
    "epsilon",
    "epsilon_high",
    "generation_batch_size",
    "generation_kwargs",
    "importance_sampling_level",
    "learning_rate",
    "loss_type",
    "mask_truncated_completions",
    "max_completion_length",
    "min_p",
    "multi_objective_aggregation",
    "num_generations",
    "num_iterations",
    "off_policy_mask_threshold",
    "repetition_penalty",
    "reward_weights",
    "scale_rewards",
    "shuffle_dataset",
    "steps_per_generation",
    "sync_ref_model",
    "temperature",
    "top_entropy_quantile",
    "top_k",
    "top_p",
    "use_adaptive_entropy",
    "use_bias_correction_kl",
    "use_vllm",
    "vllm_importance_sampling_correction",
)
"""Those of GRPOConfig at f2cd577 that change what is learnt."""
OF_FUNCTIONS = {"prompt", "history"}
"""What functions get: the row's field, the argument of observe."""


def named() -> Iterator[str]:
    """Names of ours: code spans of the right column that are neither calls nor commands."""
    for _, here in ROWS:
        for span in re.findall(r"`([^`]+)`", here):
            if NAME.fullmatch(span) and span not in OF_FUNCTIONS:
                yield span


def is_field(path: str) -> bool:
    """Whether a job spec has a field at ``path``; `*` is any key of a map."""
    schema: dict[str, Any] = TypeAdapter(JobSpec).json_schema()
    places = [schema]
    for part in path.split("."):
        places = [inner for place in places for inner in step(place, part, schema)]
    return bool(places)


def step(place: dict[str, Any], part: str, schema: dict[str, Any]) -> Iterator[dict[str, Any]]:
    if "$ref" in place:
        yield from step(schema["$defs"][place["$ref"].rpartition("/")[2]], part, schema)
    for union in ("anyOf", "oneOf"):
        for choice in place.get(union, []):
            yield from step(choice, part, schema)
    values = [place.get("additionalProperties"), *place.get("patternProperties", {}).values()]
    if part == "*":
        yield from (value for value in values if isinstance(value, dict))
    elif part in place.get("properties", {}):
        yield place["properties"][part]


@pytest.mark.parametrize("name", sorted(set(named())))
def test_page_when_it_names_a_setting_of_ours_then_it_exists(name: str) -> None:
    path, _, value = name.partition("=")
    assert (path in ARGUMENTS) or ("=" not in name and is_field(path)), name
    if path == "algorithm" and value:
        kind = re.search(r'"kind": "(\w+)"|^"(\w+)"$', value)
        assert kind, name
        assert (kind.group(1) or kind.group(2)) in plugins.registered(plugins.ALGORITHMS)


def test_page_when_read_then_its_names_are_found() -> None:
    assert len(set(named())) > 60


@pytest.mark.parametrize("name", ["comlrl_quickstart", "trl_quickstart"])
def test_page_when_it_shows_an_example_then_the_file_has_it_in_twenty_lines(name: str) -> None:
    source = (ROOT / "examples" / "coming_from" / f"{name}.py").read_text("utf-8")
    body = source.partition('"""\n\n')[2].partition('\n\n\nif __name__ == "__main__"')[0]
    assert f"```python\n{body}\n```" in PAGE
    assert len([line for line in source.splitlines() if line.strip()]) <= 20


def test_page_when_it_lists_options_of_trl_then_has_all_that_change_learning() -> None:
    missing = [name for name in TRL_OPTIONS if f"`{name}`" not in PAGE]
    assert missing == []
