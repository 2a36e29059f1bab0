"""The search task: its worlds and index, what is paid, and what pages can't do."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from troupe.errors import InvalidArgumentError
from troupe.tasks.family import SPLITS, Task, Transition
from troupe_tasks.search import Search, SearchParams, text
from troupe_tasks.search.bm25 import Bm25, Document
from troupe_tasks.search.published import SearchRow
from troupe_tasks.search.questions import KINDS, Question
from troupe_tasks.search.retrievers import TantivyDocuments, corpus_documents
from troupe_tasks.search.state import Opened, decode_state, encode_state
from troupe_tasks.search.world import INJECTED_SHARE, world

FAMILY = Search(SearchParams())
ENV = FAMILY.environment()


def task_of(kind: str, number: int = 3, seed: int = 11) -> Task:
    return Task("by hand", "train", 0, f"1/{number}/{kind}/{seed}".encode())


def played(state: bytes, *turns: tuple[str, str]) -> Transition:
    for agent, action in turns:
        done = ENV.step(state, agent, action)
        state = done.state
    return done


def question_of(kind: str) -> Question:
    return FAMILY._instance(task_of(kind).payload.decode()).question


@pytest.mark.parametrize("kind", KINDS)
def test_question_of_each_kind_when_every_page_is_opened_then_is_paid(kind: str) -> None:
    state, rng = ENV.reset(task_of(kind)), Random(0)
    paid = 0.0
    for number in range(12):
        agent = text.AGENTS[number % 2]
        done = ENV.step(state, agent, FAMILY.demonstrate(state, agent, rng))
        paid, state = paid + done.team_reward, done.state
    assert done.success
    assert paid == 1.0
    assert len(decode_state(state).opened) == len(question_of(kind).support)


def test_answer_when_a_supporting_page_was_not_opened_then_is_paid_nothing() -> None:
    question = question_of("river_of_firm")
    first, _ = question.support
    done = played(
        ENV.reset(task_of("river_of_firm")),
        ("searcher", f"search: {first}\nopen: 1"),
        ("answerer", f"answer: {question.answers[0]}"),
    )
    assert (done.team_reward, done.done, done.success) == (0.0, True, False)


def test_answer_when_it_is_wrong_then_ends_the_episode() -> None:
    wrong = played(ENV.reset(task_of("river_of_firm")), ("answerer", "answer: Nowhere"))
    again = ENV.step(wrong.state, "answerer", f"answer: {question_of('river_of_firm').answers[0]}")
    assert (wrong.done, again.done, again.team_reward) == (True, True, 0.0)
    assert again.state == wrong.state


@pytest.mark.parametrize("agent", text.AGENTS)
def test_searcher_when_pages_are_many_then_opens_at_most_hops_and_three(agent: str) -> None:
    state = ENV.reset(task_of("river_of_firm"))
    for query in ("town river", "company seat", "painter", "judge", "singer", "pilot"):
        state = ENV.step(state, "searcher", f"search: {query}\nopen: 1 2 3 4 5").state
    assert len(decode_state(state).opened) == 5
    assert ENV.observe(state, agent)


def test_searcher_then_sees_titles_and_first_words_and_the_answerer_the_pages() -> None:
    first = question_of("river_of_firm").support[0]
    state = ENV.step(ENV.reset(task_of("river_of_firm")), "searcher", f"search: {first}").state
    shown = ENV.observe(state, "searcher")[1].content
    assert f"1. {first}: " in shown
    assert "founded" not in shown
    state = ENV.step(state, "searcher", "open: 1").state
    assert "founded" not in ENV.observe(state, "searcher")[1].content
    assert "founded" in ENV.observe(state, "answerer")[1].content
    state = ENV.step(state, "answerer", "missing: its town\nmissing: the river").state
    assert "The answerer is missing:\n| the river" in ENV.observe(state, "searcher")[1].content


def test_terms_then_pay_each_supporting_page_once() -> None:
    first, second = question_of("river_of_firm").support
    state, paid = ENV.reset(task_of("river_of_firm")), []
    turns = [
        ("searcher", f"search: {first}\nopen: 1"),
        ("answerer", f"missing: {second}"),
        ("answerer", f"missing: {second}"),
        ("searcher", f"search: {first}\nopen: 1"),
        ("searcher", f"search: {second}\nopen: 1"),
        ("answerer", f"missing: {second}"),
    ]
    for agent, action in turns:
        done = ENV.step(state, agent, action)
        paid.append(dict(done.local_rewards))
        state = done.state
    nothing, all_of_one = {"finds": 0.0, "opens": 0.0}, {"finds": 0.5, "opens": 0.5}
    assert paid == [all_of_one, {"leads": 0.5}, {"leads": 0.0}, nothing, all_of_one, {"leads": 0.0}]


def test_note_when_it_names_a_page_that_was_not_read_of_then_pays_nothing() -> None:
    second = question_of("river_of_firm").support[1]
    done = played(ENV.reset(task_of("river_of_firm")), ("answerer", f"missing: {second}"))
    assert done.local_rewards == {"leads": 0.0}


def test_page_when_it_speaks_to_the_reader_then_is_quoted_and_no_answer_changes() -> None:
    found = world("3", 1)
    assert len(found.injected) == round(INJECTED_SHARE * len(found.documents))
    title = next(iter(found.injected))
    state = ENV.reset(task_of("river_of_firm"))
    state = ENV.step(state, "searcher", f"search: {title}\nopen: 1").state
    page = next(d for d in found.documents if d.title == title)
    assert f"{title}\n| {page.text}" in ENV.observe(state, "answerer")[1].content
    done = ENV.step(state, "answerer", f"answer: {found.injected[title]}")
    assert not done.success


@pytest.mark.parametrize(
    ("answer", "is_right"),
    [
        ("Dobu", True),
        ("the river Dobu.", True),
        (" dobu ", True),
        ("Dobu or Mela", False),
        ("Dobu, Mela, Kira", False),
        ("", False),
        ("a", False),
        ("Dobu " * 9, False),
    ],
)
def test_is_right_on_each_shape(answer: str, is_right: bool) -> None:
    assert text.is_right(answer, ("Dobu", "river Dobu")) == is_right


def test_read_request_then_takes_the_last_query_and_three_opens_at_most() -> None:
    action = "search: a b\nthinking\nSearch: c d\nopen: 1, 2\nopen 5 4 9"
    assert text.read_request(action) == text.Request("c d", (1, 2, 5))
    assert len(text.read_request("search: " + "w " * 500).query.split()) == 32
    assert text.read_request("research: x\nopen: one") == text.Request("", ())


def test_bm25_then_ranks_rare_words_first_and_breaks_ties_by_number() -> None:
    pages = [Document("A", "red fish"), Document("B", "red bird"), Document("C", "red fish")]
    index = Bm25(pages)
    assert index.search("fish", 5) == [0, 2]
    assert index.search("bird red", 5) == [1, 0, 2]
    assert index.search("whale", 5) == []
    assert index.search("", 5) == []


def test_tantivy_then_agrees_with_the_own_index() -> None:
    pytest.importorskip("tantivy")
    found = world("4", 1)
    other = TantivyDocuments(found.documents)
    rng, agreed = Random(0), 0
    for _ in range(100):
        question = rng.choice(list(KINDS.values()))(found, rng)
        query = rng.choice([question.text, *question.support])
        own = [found.documents[n].title for n in found.index.search(query, 1)]
        agreed += own == [page.title for page in other.search(query, 1)]
    assert agreed >= 95
    assert list(other.search('body:x AND "(', 3)) == other.search("body x AND", 3)


def test_index_of_equal_worlds_in_processes_with_other_hash_seeds_then_is_equal() -> None:
    code = (
        "import hashlib; from troupe_tasks.search.world import world; w = world('5', 1);"
        "rows = [(k, v) for k, v in sorted(w.index._postings.items())];"
        "print(hashlib.sha256(repr((rows, w.documents, w.injected)).encode()).hexdigest())"
    )
    digests = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(digests) == 1


def test_world_ten_times_as_large_then_has_a_page_for_every_name() -> None:
    found = world("6", 10)
    titles = {document.title for document in found.documents}
    assert len(titles) == len(found.documents) == 5600
    question = KINDS["river_of_spouses_firm"](found, Random(1))
    for title in question.support:
        best = found.documents[found.index.search(title, 1)[0]]
        assert best.title == title


def test_question_when_it_is_the_query_then_rarely_shows_all_pages() -> None:
    found, rng, complete = world("7", 1), Random(2), 0
    for _ in range(100):
        question = rng.choice(list(KINDS.values()))(found, rng)
        shown = {found.documents[n].title for n in found.index.search(question.text, 5)}
        complete += shown >= set(question.support)
    assert complete <= 10


def test_splits_then_share_no_world() -> None:
    worlds = {
        split: {FAMILY.taskset().task(split, n).payload.split(b"/")[1] for n in range(80)}
        for split in SPLITS
    }
    assert not worlds["train"] & (worlds["validation"] | worlds["test"])
    assert not worlds["validation"] & worlds["test"]


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 10_000))
def test_play_when_actions_are_mixed_then_pays_at_most_the_bound_in_small_states(seed: int) -> None:
    rng = Random(seed)
    state = ENV.reset(FAMILY.taskset().task("train", seed % 40))
    players = [FAMILY.demonstrate, FAMILY.random_action, *FAMILY.attackers().values()]
    paid = 0.0
    for number in range(12):
        agent = text.AGENTS[number % 2]
        done = ENV.step(state, agent, rng.choice(players)(state, agent, rng))
        paid, state = paid + done.team_reward, done.state
        assert len(state) < 8192
    assert paid <= FAMILY.return_bound


def test_searcher_alone_when_it_may_answer_then_reads_and_answers() -> None:
    family = Search(SearchParams(searcher_answers=True))
    env, rng = family.environment(), Random(0)
    state = env.reset(task_of("birthplace_of_founder"))
    for _ in range(4):
        done = env.step(state, "searcher", family.demonstrate(state, "searcher", rng))
        state = done.state
    assert done.success


def test_state_when_it_names_no_question_then_says_so() -> None:
    with pytest.raises(InvalidArgumentError, match="no question"):
        ENV.observe(ENV.reset(Task("t", "train", 0, b"1/2/unknown/3")), "searcher")


ROW = SearchRow(
    id="hotpotqa/1",
    question="Same country?",
    answers=("yes",),
    support=("Ann", "Ben"),
    paragraphs=(("Ann", "Ann is of Peru."), ("Ben", "Ben is of Peru."), ("Cy", "Cy is tall.")),
)


@pytest.mark.parametrize("with_corpus", [False, True])
def test_published_question_when_played_then_searches_its_pages(
    with_corpus: bool, tmp_path: Path
) -> None:
    (tmp_path / "test.jsonl").write_text(ROW.model_dump_json() + "\n")
    corpus = tmp_path / "corpus.jsonl"
    lines = [json.dumps({"id": "0", "contents": f'"{t}"\n{page}'}) for t, page in ROW.paragraphs]
    corpus.write_text("\n".join(lines) + "\n")
    params = SearchParams(data=tmp_path / "test.jsonl", corpus=corpus if with_corpus else None)
    family = Search(params)
    env, state = family.environment(), b""
    state = env.reset(family.taskset().task("test", 0))
    state = env.step(state, "searcher", "search: ann\nopen: 1").state
    state = env.step(state, "searcher", "search: ben\nopen: 1").state
    assert "Ann\n| Ann is of Peru." in env.observe(state, "answerer")[1].content
    assert env.step(state, "answerer", "answer: Yes.").success


def test_corpus_when_a_line_is_no_page_then_says_which(tmp_path: Path) -> None:
    path = tmp_path / "corpus.jsonl"
    path.write_text('{"contents": "A\\nb"}\n{"id": 1}\n')
    with pytest.raises(InvalidArgumentError, match="line 2"):
        corpus_documents(path)


def prepared(folder: Path, row: SearchRow, passages: list[tuple[str, str]]) -> Search:
    (folder / "test.jsonl").write_text(row.model_dump_json() + "\n")
    lines = [json.dumps({"id": "0", "contents": f'"{title}"\n{page}'}) for title, page in passages]
    (folder / "corpus.jsonl").write_text("\n".join(lines) + "\n")
    return Search(SearchParams(data=folder / "test.jsonl", corpus=folder / "corpus.jsonl"))


def test_page_of_many_words_and_lines_when_opened_then_is_read_to_its_end(tmp_path: Path) -> None:
    long = "\n".join(["Ann has sung in many a band. "] * 200) + "\nAnn is of Peru."
    family = prepared(tmp_path, ROW, [("Ann", long)])
    env = family.environment()
    state = env.reset(family.taskset().task("test", 0))
    state = env.step(state, "searcher", "search: ann\nopen: 1").state
    shown = env.observe(state, "answerer")[1].content
    assert isinstance(shown, str)
    assert "| Ann is of Peru." in shown
    assert "left out" not in shown
    empty = replace(decode_state(state), opened=(Opened("Ann", ""),))
    assert "left out" not in str(env.observe(encode_state(empty), "answerer"))
    cut = Search(family._params.model_copy(update={"page_chars": 600})).environment()
    state = cut.step(
        env.reset(family.taskset().task("test", 0)), "searcher", "search: ann\nopen: 1"
    )
    assert "Peru" not in str(cut.observe(state.state, "answerer"))


def test_passages_of_one_title_then_are_opened_each_and_pay_the_title_once(tmp_path: Path) -> None:
    family = prepared(tmp_path, ROW, [("Ann", "Ann is tall."), ("Ann", "Ann is of Peru.")])
    env = family.environment()
    state = env.reset(family.taskset().task("test", 0))
    first = env.step(state, "searcher", "search: ann\nopen: 1")
    again = env.step(first.state, "searcher", "open: 1")
    second = env.step(again.state, "searcher", "open: 2")
    assert len(decode_state(again.state).opened) == 1
    shown = env.observe(second.state, "answerer")[1].content
    assert "| Ann is tall." in shown
    assert "| Ann is of Peru." in shown
    assert [done.local_rewards["opens"] for done in (first, second)] == [0.5, 0.0]
