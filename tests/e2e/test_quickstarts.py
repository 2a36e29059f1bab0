"""The examples of docs/coming-from.md run: on a tiny model, and on SmolLM2 where it can be had."""

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from smollm2_model import smollm2_folder

FOLDER = Path(__file__).parents[2] / "examples" / "coming_from"
POSTS = [{"prompt": f"Sum up: cat {n} likes fish better than dog {n} does."} for n in range(8)]
SUMS: list[dict[str, Any]] = [
    {"prompt": [{"role": "user", "content": f"What is {n} + {n}?"}], "solution": f"${2 * n}$"}
    for n in range(8)
]
EXAMPLES = [("comlrl_quickstart", POSTS), ("trl_quickstart", SUMS)]

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(580)]


def example(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def trained(name: str, rows: list[dict[str, Any]], model: Path, folder: Path) -> list[int]:
    options = {"steps": 2, "max_new_tokens": 16, "runs_dir": folder, "quiet": True}
    run = example(name).train(rows, str(model), **options)
    return [line["step"] for line in run.metrics if line["kind"] == "train"]


@pytest.mark.parametrize(("name", "rows"), EXAMPLES, ids=["comlrl", "trl"])
def test_example_when_run_on_a_tiny_model_then_takes_two_steps(
    name: str, rows: list[dict[str, Any]], tiny_base: Path, tmp_path: Path
) -> None:
    assert trained(name, rows, tiny_base, tmp_path / "runs") == [0, 1]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "rows"), EXAMPLES, ids=["comlrl", "trl"])
def test_example_when_run_on_smollm2_then_takes_two_steps(
    name: str, rows: list[dict[str, Any]], tmp_path: Path
) -> None:
    assert trained(name, rows, smollm2_folder(), tmp_path / "runs") == [0, 1]
