"""The repair family: faults, edits, reading, and that the script mends what chance does not."""

import ast
import json
from random import Random

import pytest
from code_world import ProcessSandbox

from troupe.errors import InvalidArgumentError
from troupe.tasks.family import SPLITS
from troupe_tasks.repair import Repair, RepairParams
from troupe_tasks.repair.calls import answer
from troupe_tasks.repair.edits import Edit, applied, edit_text, read_edits
from troupe_tasks.repair.instance import instance_of
from troupe_tasks.repair.mutations import mutations_of
from troupe_tasks.repair.reading import outline, read
from troupe_tasks.repair.repository import PACKAGES, functions_of, imported, package_files
from troupe_tasks.repair.state import decode_state, encode_state

FAMILY = Repair(RepairParams(budget_s=60.0))
SOLO = Repair(RepairParams(is_solo=True, budget_s=60.0))
SANDBOX = ProcessSandbox()
ENV = FAMILY.environment_in(SANDBOX)

SOURCE = '''"""A module."""


def most(values: list[int], least: int) -> int:
    """The largest value, at least ``least``."""
    best = least
    for value in values:
        if value > best and value != 7:
            best = value
    return max(best, least + 1)
'''
FILES = {"pkg/a.py": SOURCE, "tests/test_pkg.py": "assert True\n"}


def test_mutations_of_a_module_then_are_one_small_change_each() -> None:
    mutations = mutations_of(SOURCE)
    lines = {m.kind: [] for m in mutations}
    for mutation in mutations:
        assert SOURCE[mutation.start :].startswith(mutation.old)
        ast.parse(mutation.applied(SOURCE))
        lines[mutation.kind].append((mutation.old, mutation.new))
    assert ("value > best", "value >= best") in lines["comparison"]
    assert ("value != 7", "value == 7") in lines["comparison"]
    assert ("least + 1", "least - 1") in lines["arithmetic"]
    assert ("7", "8") in lines["constant"]
    assert ("max(best, least + 1)", "min(best, least + 1)") in lines["called"]
    assert lines["logic"] == [
        ("value > best and value != 7", "value > best or value != 7"),
    ]
    assert not [m for m in mutations if '"""' in m.old]


def test_packages_of_all_splits_then_are_distinct_and_import() -> None:
    names = [name for split in SPLITS for name in PACKAGES[split]]
    assert len(names) == len(set(names))
    for name in names:
        files = package_files(name)
        assert len(functions_of(files)) >= 7
        assert imported(files)
        assert all(text.isascii() for text in files.values())
        assert not [
            n for t in files.values() for n in ast.walk(ast.parse(t)) if isinstance(n, ast.While)
        ]


def test_own_package_in_this_process_then_answers_as_its_documentation_says() -> None:
    modules = imported(package_files("ledger"))
    assert answer(modules, "ledger.book.statement", ([-5, 3], 2)) == (True, ["-0.03*", "0.00"])
    assert answer(modules, "ledger.money.shared", (7, 3)) == (True, [3, 2, 2])
    modules = imported(package_files("intervals"))
    spans = [(5, 3), (4, 8), (9, 9), (20, 10)]
    assert answer(modules, "intervals.sets.merged", (spans,)) == (True, [(3, 8), (10, 20)])
    assert answer(modules, "intervals.sets.gaps", (spans,)) == (True, [(8, 10)])


@pytest.mark.parametrize("split", SPLITS)
def test_task_of_each_split_then_fails_where_it_says_and_the_right_source_does_not(
    split: str,
) -> None:
    for index in range(12):
        task = FAMILY.taskset().task(split, index)  # type: ignore[arg-type]
        instance = instance_of(json.loads(task.payload))
        assert instance.package in PACKAGES[split]  # type: ignore[index]
        assert 4 <= len(instance.failing) <= 6
        wrong, right = imported(instance.files), imported(package_files(instance.package))
        for tests, is_failing in (
            ((instance.shown[0], *instance.failing), True),
            ((*instance.shown[1:], *instance.passing), False),
        ):
            for _, args, value in tests:
                name, *values = ast.literal_eval(args)
                wanted = ast.literal_eval(value)
                assert answer(right, name, tuple(values)) == (True, wanted)
                assert (answer(wrong, name, tuple(values)) == (True, wanted)) != is_failing
        inputs = [test[1] for test in (*instance.shown, *instance.failing, *instance.passing)]
        assert len(inputs) == len(set(inputs))


def test_team_when_the_script_plays_then_mends_every_fault() -> None:
    for family in (FAMILY, SOLO):
        env = family.environment_in(SANDBOX)
        for index in range(6):
            state = env.reset(family.taskset().task("test", index))
            for agent in family.agents:
                done = env.step(state, agent, family.demonstrate(state, agent, Random(0)))
                state = done.state
            assert done.success
            assert done.team_reward == pytest.approx(1.0)
            assert env.observe(state, "fixer") == ()


def test_reward_when_a_part_of_the_tests_is_mended_then_is_paid_once_and_little() -> None:
    task = FAMILY.taskset().task("train", 2)
    state = ENV.reset(task)
    instance = decode_state(state).instance
    path, start, wrong, right = instance.fault
    text = instance.files[path]
    name = instance.shown[0][0].partition("(")[0].rpartition(".")[2]
    known = {test[1]: test[2] for test in instance.failing[:1]}
    special = text.rstrip("\n")
    (args, value), *_ = known.items()
    special += (
        f"\n\n\n_old = {name}\n\n\ndef {name}(*args):\n"
        f"    return {value} if args == {args}[1:] else _old(*args)"
    )
    first = ENV.step(state, "fixer", edit_text(Edit(path, text.rstrip("\n"), special)))
    is_own = instance.failing[0][0].startswith(f"{path[:-3].replace('/', '.')}.{name}(")
    wanted = 0.3 / len(instance.failing) if is_own else 0.0
    assert first.team_reward == pytest.approx(wanted)
    again = ENV.step(first.state, "fixer", edit_text(Edit(path, special, special + "\n")))
    assert again.team_reward == 0.0
    mended = text[:start] + right + text[start + len(wrong) :]
    current = decode_state(again.state).files[path].rstrip("\n")
    last = ENV.step(again.state, "fixer", edit_text(Edit(path, current, mended.rstrip("\n"))))
    assert first.team_reward + last.team_reward == pytest.approx(1.0)
    assert last.success


def test_read_when_it_searches_opens_and_shows_then_finds_lines_with_numbers() -> None:
    reading = read(FILES, "search best =\nopen pkg/a.py 4 5\nshow pkg/a.py:8-9\nnote look at 8")
    assert reading.found == (
        "pkg/a.py:6 best = least\npkg/a.py:9 best = value",
        "pkg/a.py:\n  4 def most(values: list[int], least: int) -> int:\n"
        '  5     """The largest value, at least ``least``."""',
    )
    assert reading.handed[0].startswith("pkg/a.py:\n  8         if value > best")
    assert reading.handed[1] == "note: look at 8"
    assert reading.shown == (("pkg/a.py", 8, 9),)
    assert reading.is_well_formed


@pytest.mark.parametrize(
    ("text", "is_well_formed"),
    [("wait", True), ("", False), ("Let me think.", False), ("note a\n" * 5, False)],
)
def test_read_of_each_form_then_says_whether_it_is_one(text: str, is_well_formed: bool) -> None:
    assert read(FILES, text).is_well_formed == is_well_formed


def test_outline_then_lists_files_and_functions() -> None:
    assert outline(FILES) == ["pkg/a.py (10 lines)", "  4 most", "tests/test_pkg.py (1 lines)"]


@pytest.mark.parametrize(
    ("text", "search", "after"),
    [
        ("a\nb\n", "b\n", "a\nc\n"),
        ("a\nb", "b", "a\nc\n"),
        ("a\nb\n\nd\n", "b\n", "a\nc\n\nd\n"),
    ],
)
def test_applied_when_a_block_ends_at_an_empty_line_or_the_end_then_changes_the_file(
    text: str, search: str, after: str
) -> None:
    edited = applied({"p.py": text}, (Edit("p.py", search, "c\n"),))
    assert (edited.changed, edited.refusals) == ({"p.py": after}, ())


def test_read_edits_when_blocks_stand_among_prose_then_reads_them_all() -> None:
    one, two = Edit("pkg/a.py", "    best = least", "    best = 0"), Edit("b.py", "x", "y\nz")
    text = f"I mend it.\n```python\n{edit_text(one)}\n```\nAnd:\n{edit_text(two)}"
    assert read_edits(text) == ((one, two), True)
    assert read_edits(edit_text(one).replace("=======", "")) == ((), False)
    assert read_edits("\n".join([edit_text(one)] * 5))[1] is False


def test_applied_when_lines_stand_once_then_changes_them_and_nothing_else() -> None:
    edited = applied(FILES, (Edit("pkg/a.py", "    best = least", "    best = 0"),))
    assert edited.changed == {"pkg/a.py": SOURCE.replace("    best = least\n", "    best = 0\n")}
    assert edited.refusals == ()


def test_prompts_when_a_team_plays_then_the_fixer_sees_only_what_it_is_handed() -> None:
    task = FAMILY.taskset().task("train", 4)
    state = ENV.reset(task)
    source = "\n".join(decode_state(state).instance.files.values())
    long_lines = [line for line in source.split("\n") if line.startswith("    ") and len(line) > 24]
    assert not [x for x in long_lines if x in ENV.observe(state, "fixer")[-1].content]
    path = decode_state(state).instance.fault[0]
    state = ENV.step(state, "reader", f"open {path}").state
    assert "def " in ENV.observe(state, "reader")[-1].content
    assert "def " not in ENV.observe(state, "fixer")[-1].content


def test_outcomes_after_an_edit_then_name_shown_tests_alone_and_no_raw_error() -> None:
    task = FAMILY.taskset().task("train", 4)
    state = ENV.reset(task)
    instance = decode_state(state).instance
    path = instance.fault[0]
    top = instance.files[path].split("\n")[0]
    broken = edit_text(Edit(path, top, f"{top}\nraise ValueError('the secret path /judge')"))
    done = ENV.step(state, "fixer", broken)
    shown = ENV.observe(done.state, "fixer")[-1].content
    assert "raises an error" in shown
    assert "/judge" not in shown
    assert not [call for call, _, _ in instance.failing if call in shown]


def test_state_when_it_is_encoded_then_comes_back_and_stays_far_below_a_megabyte() -> None:
    for index in range(10):
        state = ENV.reset(FAMILY.taskset().task("train", index))
        assert encode_state(decode_state(state)) == state
        assert len(state) < 8 * 1024


def test_family_without_a_sandbox_or_with_an_unknown_agent_then_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="environment_in"):
        FAMILY.environment()
    with pytest.raises(InvalidArgumentError, match="reader"):
        SOLO.environment_in(SANDBOX).observe(ENV.reset(FAMILY.taskset().task("train", 0)), "reader")
