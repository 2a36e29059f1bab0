"""``file.py:attr``: one file is enough for a task, a reward, an algorithm."""

import importlib
import sys
from pathlib import Path
from typing import Any

import pytest

from troupe import plugins
from troupe.cli.specs import read_spec, with_local_paths
from troupe.errors import InvalidArgumentError
from troupe.tasks.registry import load_family

TASK = """
from besides import LIMIT
from troupe import SimpleTask

class Count(SimpleTask):
    def draw(self, rng):
        return rng.randrange(LIMIT)

    def observe(self, state, agent):
        return str(state)

    def step(self, state, agent, action):
        return self.transition(state, float(action == str(state)), done=True)
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "besides.py").write_text("LIMIT = 10**6\n")
    (tmp_path / "my_task.py").write_text(TASK)
    return tmp_path


def test_task_when_a_file_is_named_then_loads_with_what_lies_beside_it(folder: Path) -> None:
    family = load_family(f"{folder}/my_task.py:Count", {"seed": 3})
    env = family.environment()
    state = env.reset(family.taskset().task("train", 0))
    answer = env.observe(state, "agent")[0].content
    assert env.step(state, "agent", answer).team_reward == 1.0


def test_file_when_it_changes_then_the_new_class_is_loaded(folder: Path) -> None:
    path = folder / "my_task.py"
    first = plugins.load(plugins.TASKS, f"{path}:Count")
    assert plugins.load(plugins.TASKS, f"{path}:Count") is first
    path.write_text(TASK + "\nCount.return_bound = 2.0\n")
    assert plugins.load(plugins.TASKS, f"{path}:Count").return_bound == 2.0
    assert first.return_bound == 1.0


@pytest.mark.parametrize("helper", ["helper_of_two", "helpers_of_two.inner"])
def test_files_when_their_helpers_have_one_name_then_each_gets_the_one_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, helper: str
) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    lines = f"import {helper} as found\nWHO, KIND = found.WHO, found.Kind\n"
    late = f"def late():\n    import {helper} as found\n    return found.WHO\n"
    for folder in ("first", "second"):
        file = tmp_path / folder / f"{helper.replace('.', '/')}.py"
        file.parent.mkdir(parents=True)
        file.write_text(f"WHO = {folder!r}\nclass Kind: ...\n")
        (tmp_path / folder / "tasks.py").write_text(lines + late)
        (tmp_path / folder / "pays.py").write_text(lines)

    def load(name: str) -> Any:
        return plugins.load(plugins.DATASETS, f"{tmp_path}/{name}")

    loaded = [load(f"{folder}/tasks.py:WHO") for folder in ("first", "second")]
    assert loaded == ["first", "second"]
    for folder in ("first", "second"):
        assert load(f"{folder}/pays.py:KIND") is load(f"{folder}/tasks.py:KIND")
    assert load("first/tasks.py:late")() == "first"


def test_files_when_one_lies_beside_a_package_that_is_imported_then_others_get_that_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [str(tmp_path / "source"), *sys.path])
    for folder in ("source", "other"):
        (tmp_path / folder / "library_of_both").mkdir(parents=True)
        (tmp_path / folder / "task.py").write_text("import library_of_both.part as PART\n")
    (tmp_path / "source" / "library_of_both" / "__init__.py").touch()
    (tmp_path / "source" / "library_of_both" / "part.py").touch()
    importlib.import_module("library_of_both")
    first, second = (
        plugins.load(plugins.DATASETS, f"{tmp_path}/{folder}/task.py:PART")
        for folder in ("source", "other")
    )
    assert first is second


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("none.py:Count", "No such file.* troupe submit SPEC --with none.py"),
        ("my_task.py:Cuont", "my_task.py defines no 'Cuont'; did you mean 'Count'"),
        ("broken.py:Count", "invalid syntax"),
        ("folder.py:Count", "Is a directory"),
        ("ends.py:Count", r"SystemExit: 3 \(at .*ends.py, line 3"),
        ("fails.py:Count", r"NameError: .*'LIMIT'.* \(at .*fails.py, line 2, .*`COUNT = LIMIT`\)"),
    ],
)
def test_file_when_it_cannot_be_loaded_then_says_why(
    folder: Path, target: str, message: str
) -> None:
    (folder / "broken.py").write_text("def :")
    (folder / "folder.py").mkdir()
    (folder / "ends.py").write_text("import sys\n\nsys.exit(3)\n")
    (folder / "fails.py").write_text("\nCOUNT = LIMIT\n")
    with pytest.raises(InvalidArgumentError, match=message):
        plugins.load(plugins.TASKS, f"{folder}/{target}")


def test_task_when_its_constructor_raises_then_says_where(folder: Path) -> None:
    (folder / "lazy.py").write_text(
        TASK + "\n    def __init__(self, params):\n        raise KeyError('rows')\n"
    )
    words = r"task '.*' cannot be made: KeyError: 'rows' \(at .*lazy.py, line \d+, in __init__"
    with pytest.raises(InvalidArgumentError, match=words) as caught:
        load_family(f"{folder}/lazy.py:Count", {})
    assert caught.value.pointer == "/task/name"


def test_module_when_strangers_name_it_then_they_are_told_neither_its_text_nor_its_lines(
    folder: Path,
) -> None:
    (folder / "secret_task.py").write_text("KEYS = {'a': 1}['sk-secret']\n")
    with (
        plugins.only_modules(["secret_task"]),
        pytest.raises(InvalidArgumentError, match=r"KeyError \(the service's log") as caught,
    ):
        plugins.load(plugins.TASKS, "secret_task:Count")
    assert "sk-secret" not in caught.value.message


def test_task_when_it_opens_a_file_then_strangers_are_not_told_its_path(folder: Path) -> None:
    (folder / "reads_task.py").write_text(
        TASK + "\n    def __init__(self, params):\n        open('/no/such/place')\n"
    )
    words = r"made: No such file or directory \(the service's log says where\); correct"
    with plugins.only_modules(["reads_task"]), pytest.raises(InvalidArgumentError, match=words):
        load_family("reads_task:Count", {})
    with pytest.raises(InvalidArgumentError, match=r"/no/such/place.*or the parameters"):
        load_family("reads_task:Count", {})


def test_task_when_the_machine_lacks_memory_then_the_task_is_not_blamed(folder: Path) -> None:
    (folder / "huge.py").write_text(
        TASK + "\n    def __init__(self, params):\n        raise MemoryError\n"
    )
    with pytest.raises(MemoryError):
        load_family(f"{folder}/huge.py:Count", {})


@pytest.mark.parametrize("modules", [(), ("my_task",), ("my", "my_task.py"), ("/",)])
def test_file_when_modules_are_limited_then_is_refused(
    folder: Path, monkeypatch: pytest.MonkeyPatch, modules: tuple[str, ...]
) -> None:
    monkeypatch.chdir(folder)
    for name in ("my_task.py:Count", "./my_task.py:Count", f"{folder}/my_task.py:Count"):
        with (
            plugins.only_modules(modules),
            pytest.raises(InvalidArgumentError, match="may not load"),
        ):
            plugins.load(plugins.TASKS, name)


def test_spec_when_it_names_a_file_then_the_router_gets_its_absolute_path(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    example = Path("examples/demo.yaml").resolve()
    monkeypatch.chdir(folder)
    (folder / "m").mkdir()
    (folder / "m" / "config.json").write_text("{}")
    changes = ["task.name=my_task.py:Count", "policies.shared.model=m", "task.params={}"]
    spec = with_local_paths(read_spec(example, changes))
    assert spec.task.name == f"{folder.resolve()}/my_task.py:Count"
    assert spec.workflow.kind == "turn_based"
