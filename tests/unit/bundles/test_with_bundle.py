"""A spec with a bundle: what is filled in and checked before it is sent, and how it is planned."""

from pathlib import Path
from typing import Any

import pytest

from troupe.bundles import build_bundle, with_bundle
from troupe.episodes.build import load_parts
from troupe.errors import InvalidArgumentError
from troupe.spec import SpecInvalidError, parse_spec

TASK = """
from troupe import SimpleTask
from words import OPTIONS

class Echo(SimpleTask):
    agents = ("first", "second")
    terms = {"short": 0.5}

    def draw(self, rng):
        return rng.choice(OPTIONS) + str(rng.random())

    def observe(self, state, agent):
        return state

    def step(self, state, agent, action):
        return self.transition(state, float(action == state), done=True, short=1.0)
"""
REWARD = "def polite(transition, task, *, words: int = 3):\n    return float(words)\n"


@pytest.fixture
def code(tmp_path: Path) -> Path:
    (tmp_path / "my_task.py").write_text(TASK)
    (tmp_path / "words.py").write_text('OPTIONS = ["a", "b"]\n')
    (tmp_path / "rewards").mkdir()
    (tmp_path / "rewards/manners.py").write_text(REWARD)
    return tmp_path


def document(**more: Any) -> dict[str, Any]:
    return {
        "name": "mine",
        "steps": 1,
        "task": {"name": "my_task.py:Echo"},
        "workflow": {"order": ["first", "second"]},
        "agents": {"first": {"policy": "p"}, "second": {"policy": "p"}},
        "policies": {"p": {"model": "models/any"}},
        **more,
    }


def test_spec_when_it_gets_a_bundle_then_holds_its_digest_and_the_tasks_facts(code: Path) -> None:
    bundle = build_bundle([code / "my_task.py", code / "words.py"], root=code)
    spec = with_bundle(parse_spec(document()), bundle, root=code)
    assert spec.bundle is not None and spec.bundle.task is not None
    assert spec.bundle.digest == bundle.digest
    assert spec.bundle.task.agents == ["first", "second"]
    assert spec.bundle.task.local_terms["first"] == {"short": 0.5}
    assert spec.bundle.task.sizes == {"train": None, "validation": None, "test": None}
    assert parse_spec(spec.model_dump(mode="json")) == spec


def test_spec_when_it_is_absolute_then_names_the_file_in_the_bundle(code: Path) -> None:
    bundle = build_bundle([code / "my_task.py", code / "words.py"], root=code)
    named = document(task={"name": f"{code}/my_task.py:Echo"})
    spec = with_bundle(parse_spec(named), bundle, root=code)
    assert spec.task.name == "my_task.py:Echo"


def test_parts_when_the_task_is_bundled_then_plan_and_judge_nothing(code: Path) -> None:
    bundle = build_bundle([code / "my_task.py", code / "words.py", code / "rewards"], root=code)
    reward = {"kind": "rewards/manners.py:polite", "params": {"words": 4}, "weight": 0.25}
    spec = with_bundle(parse_spec(document(reward=reward)), bundle, root=code)
    parts = load_parts(spec)
    assert parts.family.agents == ("first", "second")
    assert parts.family.local_terms["second"] == {"short": 0.5, "polite": 0.25}
    assert parts.family.taskset().size("train") is None
    with pytest.raises(InvalidArgumentError, match="env services alone"):
        parts.family.taskset().task("train", 0)


def test_parts_when_agents_are_not_the_tasks_then_the_spec_is_refused(code: Path) -> None:
    bundle = build_bundle([code / "my_task.py", code / "words.py"], root=code)
    spec = with_bundle(parse_spec(document()), bundle, root=code)
    other: dict[str, Any] = {**spec.model_dump(mode="json"), "agents": {"frist": {"policy": "p"}}}
    other["workflow"]["order"] = ["frist"]
    with pytest.raises(SpecInvalidError, match="did you mean 'first'"):
        load_parts(parse_spec(other))


def test_parts_when_facts_are_missing_then_says_how_to_get_them(code: Path) -> None:
    bundle = build_bundle([code / "my_task.py", code / "words.py"], root=code)
    spec = parse_spec(document(bundle={"digest": bundle.digest}))
    with pytest.raises(SpecInvalidError, match="troupe submit --with"):
        load_parts(spec)


@pytest.mark.parametrize(
    ("paths", "change", "says"),
    [
        (["my_task.py"], {}, "No module named 'words'"),
        (["words.py"], {}, "the bundle has no 'my_task.py'"),
        (["my_task.py", "words.py"], {"reward": "rewards/manners.py:polite"}, "/reward/kind"),
        (["my_task.py", "words.py"], {"task": {"name": "my_task.py:Ech"}}, "defines no 'Ech'"),
        (["my_task.py", "words.py", "broken.py"], {"task": {"name": "broken.py:X"}}, "line 1"),
        (["my_task.py", "words.py", "exits.py"], {"task": {"name": "exits.py:X"}}, "status 7"),
        (
            ["my_task.py", "words.py"],
            {"task": {"name": "program", "params": {"judge": {"name": "my_task.py:Echo"}}}},
            "agent programs don't come in a bundle",
        ),
        (
            ["my_task.py", "words.py"],
            {"task": {"name": "my_task.py:Echo", "params": {"sead": 1}}},
            "did you mean 'seed'",
        ),
    ],
)
def test_spec_when_the_bundle_does_not_fit_then_says_what_is_wrong(
    paths: list[str], change: dict[str, Any], says: str, code: Path
) -> None:
    (code / "broken.py").write_text("1 / 0\n")
    (code / "exits.py").write_text("import os; os._exit(7)\n")
    bundle = build_bundle([code / path for path in paths], root=code)
    with pytest.raises(SpecInvalidError) as failure:
        with_bundle(parse_spec(document(**change)), bundle, root=code)
    assert says in str(failure.value)


def test_spec_when_the_code_writes_to_stdout_then_that_is_no_answer(code: Path) -> None:
    says = "import os\nprint('a')\nos.write(1, b'b')\nos.system('echo c')\n"
    (code / "my_task.py").write_text(says + (code / "my_task.py").read_text())
    bundle = build_bundle([code / "my_task.py", code / "words.py"], root=code)
    assert with_bundle(parse_spec(document()), bundle, root=code).bundle is not None


def test_spec_when_importing_never_ends_then_a_deadline_does(code: Path) -> None:
    (code / "endless.py").write_text("while True: pass\n")
    bundle = build_bundle([code / "endless.py"], root=code)
    spec = parse_spec(document(task={"name": "endless.py:X"}))
    with pytest.raises(SpecInvalidError, match="does importing it end"):
        with_bundle(spec, bundle, root=code, timeout_s=3.0)
