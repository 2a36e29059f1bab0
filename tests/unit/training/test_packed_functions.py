"""Functions and rows as a bundle that another machine judges with."""

import importlib
import json
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from troupe.bundles import Bundle, unpack, with_bundle
from troupe.errors import InvalidArgumentError
from troupe.spec import JobSpec, SpecInvalidError
from troupe.tasks.registry import load_family
from troupe.training.dataset import TaskRows
from troupe.training.functions import Functions
from troupe.training.job import TrainingOptions, job_spec
from troupe.training.packing import BUNDLED_TASK, ROWS_FILE, TASK_FILE, named_function, pack

ROWS = TaskRows.of([{"prompt": "one"}, {"prompt": "two"}], [{"prompt": "three"}])
AGENTS = {"a": "Be short."}
SOURCE = """
from my_scale import SCALE
def reward(row, texts): return len(texts["a"]) * SCALE
def observe(row, agent, history): return row["prompt"].upper()
brief = lambda row, texts: -len(texts["a"])
"""


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    (tmp_path / "my_functions.py").write_text(SOURCE)
    (tmp_path / "my_scale.py").write_text("SCALE = 0.5\n")
    package = tmp_path / "my_package"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "judges.py").write_text("def judge(row, texts): return 1.0\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    yield importlib.import_module("my_functions")
    for name in [n for n in sys.modules if n.split(".")[0] in ("my_functions", "my_package")]:
        del sys.modules[name]


def spec() -> JobSpec:
    params = {"agents": AGENTS, "digest": ROWS.digest}
    task = {"name": BUNDLED_TASK, "params": params}
    return job_spec(AGENTS, ROWS, task, TrainingOptions(model="org/model"), is_here=False)


def packed(mine: ModuleType, **more: Any) -> Bundle:
    functions = Functions(mine.reward, mine.observe, success=0.75)
    return pack(functions, ROWS, files=["my_scale.py"], **more)


def test_pack_when_functions_have_a_file_then_bundle_can_be_read(mine: ModuleType) -> None:
    bundle = packed(mine)
    assert set(bundle.files) == {"my_functions.py", "my_scale.py", ROWS_FILE, TASK_FILE}
    text = bundle.files[TASK_FILE].decode()
    assert "import my_functions" in text
    assert "reward=my_functions.reward, observe=my_functions.observe, success=0.75" in text
    assert json.loads(bundle.files[ROWS_FILE])["held_out"] == [{"prompt": "three"}]
    assert packed(mine).digest == bundle.digest


def test_bundle_when_loaded_alone_then_its_facts_stand_in_the_spec(mine: ModuleType) -> None:
    part = with_bundle(spec(), packed(mine)).bundle
    assert part is not None
    assert part.task is not None
    assert part.task.agents == ["a"]
    assert part.task.sizes == {"train": 2, "validation": 1, "test": 0}


def test_bundle_when_a_file_was_forgotten_then_is_refused_before_the_job(mine: ModuleType) -> None:
    bundle = pack(Functions(mine.reward), ROWS)
    with pytest.raises(SpecInvalidError, match="my_scale"):
        with_bundle(spec(), bundle)


def test_task_when_loaded_from_the_bundle_then_judges_as_here(
    mine: ModuleType, tmp_path: Path
) -> None:
    unpack(packed(mine), tmp_path / "there")
    name = f"{tmp_path / 'there' / TASK_FILE}:RowsTask"
    family = load_family(name, {"agents": AGENTS, "digest": ROWS.digest})
    environment = family.environment()
    state = environment.reset(family.taskset().task("train", 1))
    assert environment.observe(state, "a")[0].content == "TWO"
    after = environment.step(state, "a", "xx")
    assert (after.team_reward, after.done, after.success) == (1.0, True, True)


def test_function_when_in_a_package_then_the_whole_package_goes_along(mine: ModuleType) -> None:
    judges = importlib.import_module("my_package.judges")
    bundle = pack(Functions(judges.judge), ROWS)
    assert {"my_package/__init__.py", "my_package/judges.py"} < set(bundle.files)


def test_function_when_a_lambda_has_a_name_in_its_module_then_can_travel(mine: ModuleType) -> None:
    assert named_function("reward", mine.brief).attribute == "brief"


def test_function_when_installed_then_is_named_and_not_sent() -> None:
    found = named_function("reward", json.dumps)
    assert (found.module, found.attribute, found.top) == ("json", "dumps", None)


class Judge:
    def __call__(self, row: object, texts: object) -> float:
        return 0.0


@pytest.mark.parametrize(
    "function",
    [lambda row, texts: 0.0, partial(max, 1), Judge()],
    ids=["lambda", "partial", "callable"],
)
def test_function_when_no_name_of_a_file_then_is_refused_with_what_to_do(function: Any) -> None:
    with pytest.raises(InvalidArgumentError, match=r"can't be sent.*%%writefile rewards.py"):
        named_function("reward", function)


def test_function_when_of_the_running_script_then_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def reward(row: object, texts: object) -> float:
        return 0.0

    reward.__module__ = "__main__"
    monkeypatch.setattr(sys.modules["__main__"], "reward", reward, raising=False)
    with pytest.raises(InvalidArgumentError, match=r"give reward=rewards.reward"):
        named_function("reward", reward)
