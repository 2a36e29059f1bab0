"""Readers of HotpotQA, 2WikiMultihopQA and MuSiQue: rows in their published forms."""

import json

import pytest

from troupe.data.dataset import RefusedRowError
from troupe.data.registry import find_dataset
from troupe_tasks.search.published import SearchRow

CONTEXT = [["Ann", ["Ann is of Peru.", " She sings."]], ["Ben", ["Ben is tall."]]]
HOTPOT = {
    "_id": "5a8b57f25542995d1e6f1371",
    "question": "Who is tall?",
    "answer": "Ben",
    "type": "bridge",
    "level": "hard",
    "supporting_facts": [["Ben", 0], ["Ann", 0], ["Ben", 1]],
    "context": CONTEXT,
}
COLUMNS = {
    **HOTPOT,
    "supporting_facts": {"title": ["Ben", "Ann"], "sent_id": [0, 0]},
    "context": {"title": ["Ann", "Ben"], "sentences": [c[1] for c in CONTEXT]},
}
MUSIQUE = {
    "id": "2hop__482757_12019",
    "question": "When was it founded?",
    "answer": "1960",
    "answer_aliases": ["in 1960", ""],
    "answerable": True,
    "paragraphs": [
        {"idx": 0, "title": "A", "paragraph_text": "A of B.", "is_supporting": True},
        {"idx": 1, "title": "C", "paragraph_text": "C.", "is_supporting": False},
        {"idx": 2, "title": "A", "paragraph_text": "More of A.", "is_supporting": False},
        {"idx": 3, "title": "B", "paragraph_text": "B: 1960.", "is_supporting": True},
    ],
    "question_decomposition": [{"id": 1, "question": "A >> of", "answer": "B"}],
}


def converted(name: str, row: dict[str, object]) -> SearchRow:
    return SearchRow.model_validate(dict(find_dataset(name).convert(row)))


@pytest.mark.parametrize("name", ["hotpotqa", "2wiki"])
def test_row_in_either_encoding_then_has_pages_and_the_titles_that_it_rests_on(name: str) -> None:
    rows = [
        converted(name, row)
        for row in (HOTPOT, COLUMNS, {**HOTPOT, "context": json.dumps(CONTEXT)})
    ]
    assert rows[0] == rows[1] == rows[2]
    assert rows[0].support == ("Ben", "Ann")
    assert rows[0].paragraphs[0] == ("Ann", "Ann is of Peru.  She sings.")
    assert rows[0].id == f"{name}/5a8b57f25542995d1e6f1371"


def test_row_without_an_id_then_has_a_lasting_one() -> None:
    bare = {k: v for k, v in HOTPOT.items() if k != "_id"}
    assert converted("hotpotqa", bare).id == converted("hotpotqa", bare).id


def test_musique_row_then_merges_pages_of_one_title_and_keeps_aliases() -> None:
    row = converted("musique", MUSIQUE)
    assert row.paragraphs == (("A", "A of B. More of A."), ("C", "C."), ("B", "B: 1960."))
    assert (row.support, row.answers, row.kind) == (("A", "B"), ("1960", "in 1960"), "2hop")


@pytest.mark.parametrize(
    ("name", "row", "reason"),
    [
        ("hotpotqa", {**HOTPOT, "supporting_facts": [["Zoe", 0]]}, "support_not_in_context"),
        ("hotpotqa", {**HOTPOT, "context": []}, "no_context"),
        ("hotpotqa", {**HOTPOT, "context": "[" * 100_000}, "context_unreadable"),
        ("2wiki", {**HOTPOT, "context": {"title": ["A"], "sentences": []}}, "no_context"),
        ("2wiki", {**HOTPOT, "answer": ""}, "no_answer"),
        ("musique", {**MUSIQUE, "answerable": False}, "unanswerable"),
        ("musique", {**MUSIQUE, "paragraphs": [1]}, "no_paragraph"),
    ],
)
def test_row_when_it_cannot_be_used_then_is_refused_with_a_reason(
    name: str, row: dict[str, object], reason: str
) -> None:
    with pytest.raises(RefusedRowError) as caught:
        find_dataset(name).convert(row)
    assert caught.value.reason == reason
