"""The database task: its instances, what is right, what is paid, and what agents see."""

import shutil
import sqlite3
import time
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from troupe.errors import InvalidArgumentError, NotFoundError
from troupe.tasks.family import SPLITS, Task, Transition
from troupe_tasks.sql import Sql, SqlParams, text
from troupe_tasks.sql.compare import is_equal, is_ordered
from troupe_tasks.sql.contents import drawn_database
from troupe_tasks.sql.domains import DOMAINS
from troupe_tasks.sql.guard import run_query
from troupe_tasks.sql.mutants import mutants
from troupe_tasks.sql.published import SqlRow, published_instance
from troupe_tasks.sql.questions import TEMPLATES
from troupe_tasks.sql.state import decode_state
from troupe_tasks.sql.suite import drawn_question, instance

FAMILY = Sql(SqlParams())
ENV = FAMILY.environment()
KEY = "shop/group_over/1"
TASK = Task("by hand", "train", 0, KEY.encode())


def answered(state: bytes, sql: str) -> Transition:
    return ENV.step(state, "writer", text.sql_answer(sql))


@pytest.mark.parametrize("template", TEMPLATES)
def test_gold_of_every_template_in_every_domain_then_is_right_and_its_own_wrong_ones_are_not(
    template: str,
) -> None:
    paid = 0
    for domain in DOMAINS:
        _, _, question = drawn_question(domain, template, 5)
        state = ENV.reset(Task("t", "train", 0, f"{domain}/{template}/5".encode()))
        assert answered(state, question.gold).success
        paid += sum(answered(state, sql).success for sql in question.wrong)
    # COUNT(*) and COUNT(column) are equal where no value is unknown: few of 50 may be left.
    assert paid <= 2


def test_step_when_right_on_one_database_only_then_pays_nothing() -> None:
    found = instance(*("shop", "top_three"), 3)
    rows = [" , ".join(str(cell) for cell in row) for row in found.shown.rows]
    printed = " UNION ALL ".join(
        f"SELECT {row} FROM (SELECT 1 FROM customer LIMIT 1)" for row in rows
    )
    state = ENV.reset(Task("t", "train", 0, b"shop/top_three/3"))
    done = answered(state, printed)
    assert decode_state(done.state).attempt.is_right_here  # type: ignore[union-attr]
    assert (done.team_reward, done.success) == (0.0, False)


def test_step_when_constants_read_no_table_then_are_no_answer() -> None:
    done = answered(ENV.reset(TASK), "SELECT 'Ada' UNION ALL SELECT 'Bo'")
    assert done.local_rewards == {"runs": 0.0}
    assert done.info["agreeing"] == 0


def test_step_when_an_answer_is_improved_then_pays_the_difference_once() -> None:
    gold = instance(*("shop", "group_over"), 1).gold
    state = ENV.reset(TASK)
    rewards = []
    for sql in (f"{gold} AND 1", gold, gold):
        done = answered(state, sql)
        rewards.append(done.team_reward)
        state = done.state
    assert rewards == [1.0, 0.0, 0.0]
    assert done.done


def test_explorer_when_it_reads_the_same_twice_then_is_paid_once() -> None:
    state = ENV.reset(Task("t", "train", 0, b"shop/total_per_group/1"))
    paid = []
    for sql in ("SELECT DISTINCT category FROM product", "SELECT * FROM product", "SELECT 1"):
        done = ENV.step(state, "explorer", text.sql_answer(sql))
        paid.append((round(done.local_rewards["reads"], 3), done.local_rewards["finds"]))
        state = done.state
    assert paid == [(0.333, 1.0), (0.0, 0.0), (0.0, 0.0)]


@pytest.mark.parametrize(
    ("sql", "paid"),
    [
        ("SELECT {table}.{column} FROM {table}", 1.0),
        ("SELECT '{word}'", 0.0),
        ("SELECT '{word}' FROM {table}", 0.0),
        ('SELECT "{word}" FROM {table}', 0.0),
        ("SELECT upper('{small}') FROM {table}", 0.0),
        ("SELECT '{first}' || '{rest}' FROM {table}", 0.0),
        ("WITH w(a) AS (VALUES (upper('{small}'))) SELECT a FROM w", 0.0),
    ],
)
def test_explorer_when_its_query_writes_a_stored_word_then_it_is_no_find(
    sql: str, paid: float
) -> None:
    found = instance(*("shop", "group_over"), 1)
    [word] = found.stored
    assert word == word.upper()
    names = {"table": "customer", "column": "city"}
    parts = {"word": word, "small": word.lower(), "first": word[:2], "rest": word[2:]}
    query = sql.format(**names, **parts)
    assert run_query(found.shown.database, query).rows
    done = ENV.step(ENV.reset(TASK), "explorer", text.sql_answer(query))
    assert done.local_rewards["finds"] == paid


def test_explorer_when_its_query_is_a_million_brackets_then_is_refused_at_once() -> None:
    begun = time.process_time()
    done = ENV.step(ENV.reset(TASK), "explorer", text.sql_answer("SELECT " + "[" * 1_000_000))
    assert done.info["refusal"] == "too_long"
    assert time.process_time() - begun < 2.0


def test_attacker_when_it_prints_the_stored_words_then_finds_none() -> None:
    state = ENV.reset(TASK)
    printed = FAMILY.attackers()["printed_words"](state, "explorer", Random(0))
    assert ENV.step(state, "explorer", printed).local_rewards["finds"] == 0.0


def test_observe_when_the_explorer_has_read_then_the_writer_sees_it_quoted() -> None:
    sql = "SELECT DISTINCT city FROM customer"
    state = ENV.step(ENV.reset(TASK), "explorer", text.sql_answer(sql, "cities are codes")).state
    _, user = ENV.observe(state, "writer")
    assert f"Query:\n| {sql}\nResult:\n| city\n| " in user.content
    assert "| cities are codes" in user.content


def test_observe_when_a_query_is_refused_then_shows_own_words_only() -> None:
    state = answered(ENV.reset(TASK), "SELECT name FROM nowhere").state
    assert "It did not run: it names a table that does not exist." in (
        ENV.observe(state, "writer")[1].content
    )


def test_compact_style_when_the_script_plays_then_is_one_line_and_solves() -> None:
    family = Sql(SqlParams(style="compact"))
    env, taskset = family.environment(), family.taskset()
    for index in range(6):
        state = env.reset(taskset.task("train", index))
        for agent in family.agents * 4:
            (message,) = env.observe(state, agent)
            assert "\n" not in message.text
            assert message.text.endswith(f"| {agent}")
            done = env.step(state, agent, family.demonstrate(state, agent, Random(0)))
            state = done.state
        assert done.success


def test_script_when_the_shown_database_lacks_the_word_then_reads_on() -> None:
    state = ENV.reset(Task("t", "train", 0, b"shop/never_with_kind/2844228843"))
    assert "SELECT * FROM customer" in FAMILY.demonstrate(state, "explorer", Random(0))


def test_compact_style_of_every_template_then_says_its_constants_and_no_stored_word() -> None:
    for template in TEMPLATES:
        for seed in range(30):
            domain, _, question = drawn_question("shop", template, seed)
            words = question.short.split()
            natural = {*domain.groups, *domain.kinds}
            assert not ({*question.stored} - natural) & {*words}
            assert all(str(constant) in words for _, _, constant in question.edges)


def test_compact_vocabulary_then_has_every_word_of_a_gold_query_and_its_question() -> None:
    family = Sql(SqlParams(style="compact", domains=("shop",), templates=("group_over",)))
    question = drawn_question("shop", "group_over", 77)[2]
    assert {*question.gold.split(), *question.short.split()} <= {*family.vocabulary()}


def test_compact_style_for_published_questions_then_is_refused() -> None:
    with pytest.raises(ValueError, match="compact"):
        SqlParams(style="compact", data=Path("x.jsonl"), databases=Path("dbs"))


def test_writer_alone_when_it_may_see_rows_then_does() -> None:
    env = Sql(SqlParams(writer_sees_rows=True)).environment()
    state = env.step(env.reset(TASK), "writer", text.sql_answer("SELECT 7 FROM customer")).state
    assert "Its first rows:\n| 7\n| 7" in env.observe(state, "writer")[1].content
    assert (
        "first rows"
        not in ENV.observe(answered(ENV.reset(TASK), "SELECT 7").state, "writer")[1].content
    )


@pytest.mark.parametrize(
    ("gold", "rows", "ordered", "equal"),
    [
        ([(1, "a"), (2, "b")], [(2, "b"), (1, "a")], False, True),
        ([(1, "a"), (2, "b")], [(2, "b"), (1, "a")], True, False),
        ([(1,), (1,)], [(1,)], False, False),
        ([(1,)], [(1.0,)], False, True),
        ([(0.1 + 0.2,)], [(0.3,)], False, True),
        ([(1234567,)], [(1234568,)], False, False),
        ([(1234567890.0,)], [(1234567890.0000002,)], False, True),
        ([(1234567890,)], [(1234567890.25,)], False, True),
        ([(1234567890,)], [(1234567891,)], False, False),
        ([(1234567890, 0.5)], [(1234567891, 0.5)], False, False),
        ([(1234567890.0,)], [(1234567990.0,)], False, False),
        ([(0.0,), (2,)], [(-0.0,), (2.0,)], True, True),
        ([("1",)], [(1,)], False, False),
        ([(None,)], [("None",)], False, False),
        ([(1, 2)], [(2, 1)], False, False),
    ],
)
def test_is_equal_on_each_kind_of_difference(
    gold: list[tuple[object, ...]], rows: list[tuple[object, ...]], ordered: bool, equal: bool
) -> None:
    assert is_equal(gold, rows, is_ordered=ordered) == equal  # type: ignore[arg-type]


def test_is_ordered_then_looks_at_the_outermost_query() -> None:
    assert is_ordered("SELECT a FROM t ORDER BY a")
    assert not is_ordered("SELECT a FROM (SELECT a FROM t ORDER BY a LIMIT 3)")
    assert not is_ordered("SELECT 'ORDER BY' FROM t -- ORDER BY a")


@pytest.mark.parametrize(
    ("action", "query"),
    [
        ("```sql\nSELECT 1;\n```", "SELECT 1"),
        ("```\nSELECT 1\n```\nor\n```sql\nSELECT 2\n```", "SELECT 2"),
        ("I think\nselect a\nfrom t\n\nthat is it", "select a\nfrom t"),
        ("SELECT 1\nnote: done", "SELECT 1"),
        ("SELECT 1\nSELECT 2", "SELECT 2"),
        ("no query", ""),
        ("```sql\nSELECT 1", "SELECT 1"),
        ("```postgresql\nSELECT 1\n```", "SELECT 1"),
        ("```MySQL\nSELECT 1\n```\nIt gives\n```\n1\n```", "SELECT 1"),
        ("```sql\nSELECT 1\n```\nIt gives\n```text\n1\n```", "SELECT 1"),
        ("Not ```LIKE```.\n```sqlite3\nSELECT 1\n```", "SELECT 1"),
        ("Thus ```sql\nSELECT 1\n```", "SELECT 1"),
    ],
)
def test_read_query_on_each_shape_then_reads_the_last(action: str, query: str) -> None:
    assert text.read_query(action) == query


@settings(max_examples=40)
@given(st.integers(0, 2**32 - 1), st.sampled_from(list(DOMAINS)), st.sampled_from(list(TEMPLATES)))
def test_database_when_drawn_then_is_small_and_gold_runs_within_the_budget(
    seed: int, domain: str, template: str
) -> None:
    words, forms, question = drawn_question(domain, template, seed)
    database = drawn_database(words, forms, question, Random(seed))
    assert len(database) < 8192
    result = run_query(database, question.gold)
    assert result.refusal is None
    assert result.reads <= {words.a, words.b, words.link}
    assert question.tables <= result.reads
    assert all(f"'{word}'" in question.gold for word in question.stored)


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from(list(TEMPLATES)))
def test_play_when_anything_is_written_then_pays_at_most_the_bound(
    seed: int, template: str
) -> None:
    rng = Random(seed)
    state = ENV.reset(Task("t", "train", 0, f"farm/{template}/{seed % 5}".encode()))
    paid = 0.0
    for number in range(8):
        agent = text.AGENTS[number % 2]
        policy = rng.choice((FAMILY.demonstrate, FAMILY.random_action))
        done = ENV.step(state, agent, policy(state, agent, rng))
        paid, state = paid + done.team_reward, done.state
        assert len(state) < 4096
    assert paid <= FAMILY.return_bound


def test_mutants_then_each_differs_in_one_place_and_none_is_gold() -> None:
    gold = "SELECT name FROM pet WHERE age > 3 AND kind = 'cat' ORDER BY name DESC"
    found = list(mutants(gold, {"pet": ("name", "age")}, ["cat", "dog"]))
    assert len(found) == len(set(found))
    assert "SELECT name FROM pet WHERE age >= 3 AND kind = 'cat' ORDER BY name DESC" in found
    assert "SELECT name FROM pet WHERE age > 3 AND kind = 'dog' ORDER BY name DESC" in found
    assert "SELECT name FROM pet WHERE age > 3 ORDER BY name DESC" in found
    assert gold not in found


def test_splits_when_by_pair_then_share_no_domain_with_template() -> None:
    pairs = {
        split: {FAMILY.taskset().task(split, n).payload.rpartition(b"/")[0] for n in range(60)}
        for split in SPLITS
    }
    assert not pairs["train"] & (pairs["validation"] | pairs["test"])
    assert not pairs["validation"] & pairs["test"]
    assert min(map(len, pairs.values())) >= 5


def test_state_when_it_names_no_question_then_says_so() -> None:
    with pytest.raises(InvalidArgumentError, match="no question"):
        ENV.observe(ENV.reset(Task("t", "train", 0, b"shop/unknown/1")), "writer")


@pytest.fixture
def databases(tmp_path: Path) -> Path:
    for name, ages in (("pets", (3, 9)), ("pets_2", (1, 2))):
        (tmp_path / "dbs" / "pets").mkdir(parents=True, exist_ok=True)
        connection = sqlite3.connect(tmp_path / "dbs" / "pets" / f"{name}.sqlite")
        connection.execute("CREATE TABLE pet(name TEXT, age INTEGER -- years\n)")
        connection.executemany("INSERT INTO pet VALUES(?, ?)", [("Rex", ages[0]), ("Mo", ages[1])])
        connection.commit()
        connection.close()
    return tmp_path / "dbs"


ROW = SqlRow(
    id="spider/1", db_id="pets", question="Old pets?", sql="SELECT name FROM pet WHERE age > 5"
)


def test_published_question_when_played_then_is_judged_on_every_file(
    databases: Path, tmp_path: Path
) -> None:
    data = tmp_path / "test.jsonl"
    data.write_text(ROW.model_dump_json() + "\n")
    family = Sql(SqlParams(data=data, databases=databases))
    env, task = family.environment(), family.taskset().task("test", 0)
    state = env.reset(task)
    assert "CREATE TABLE pet(name TEXT, age INTEGER" in env.observe(state, "writer")[1].content
    assert env.step(state, "writer", family.demonstrate(state, "writer", Random(0))).success
    lucky = env.step(state, "writer", text.sql_answer("SELECT name FROM pet WHERE age = 9"))
    assert lucky.info["agreeing"] == 2  # nobody is that old in the second file
    assert (
        env.step(state, "writer", text.sql_answer("SELECT 'Mo' FROM pet LIMIT 1")).info["agreeing"]
        == 1
    )


@pytest.mark.parametrize(
    "constants", ["SELECT 'Mo' FROM pet LIMIT 1", "SELECT 'Mo' WHERE EXISTS (SELECT 1 FROM pet)"]
)
def test_constants_for_a_published_question_then_are_paid_on_one_file_and_not_on_two(
    databases: Path, tmp_path: Path, constants: str
) -> None:
    (tmp_path / "test.jsonl").write_text(ROW.model_dump_json() + "\n")
    alone = tmp_path / "alone" / "pets"
    alone.mkdir(parents=True)
    shutil.copy(databases / "pets" / "pets.sqlite", alone)
    rewards = []
    for folder in (alone.parent, databases):
        family = Sql(SqlParams(data=tmp_path / "test.jsonl", databases=folder))
        env = family.environment()
        state = env.reset(family.taskset().task("test", 0))
        rewards.append(env.step(state, "writer", text.sql_answer(constants)).team_reward)
    assert rewards == [1.0, 0.0]


def test_published_question_without_its_database_then_says_which_folder(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="databases"):
        published_instance(ROW, tmp_path)


def test_params_when_data_comes_without_databases_then_are_refused() -> None:
    with pytest.raises(ValueError, match="together"):
        SqlParams(data=Path("x.jsonl"))
