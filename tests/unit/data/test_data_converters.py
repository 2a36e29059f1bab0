"""Published rows become a task's own rows; what cannot be judged is refused with a reason."""

from typing import Any

import pytest

from troupe.data.dataset import RefusedRowError
from troupe.data.registry import find_dataset, known_datasets
from troupe.errors import NotFoundError
from troupe.tasks.family import SPLITS

MINE = {"aime24", "aime25", "olympiadbench", "math", "gsm8k", "polaris", "dapo_math", "tldr"} | {
    "arxiv_abstract"
}
DAPO_PROMPT = (
    "Solve the following math problem step by step. The last line of your response should be of "
    "the form Answer: $Answer.\n\nCompute $1+1$.\n\nIt is even.\n\n"
    'Remember to put your answer on its own line after "Answer:".'
)
SOLUTION = r"So \boxed{\frac{1}{2}}."
WITH_ERROR = {"question": "q", "final_answer": ["1"], "error": "1e-2"}
NO_TRUTH = {"prompt": "p", "extra_info": {"index": "1"}, "reward_model": {}}
POST = " ".join(["word"] * 30)


def _converted(name: str, row: dict[str, Any]) -> dict[str, Any]:
    dataset = find_dataset(name)
    converted = dataset.schema.model_validate(dict(dataset.convert(row)))
    return converted.model_dump(exclude_defaults=True)


@pytest.mark.parametrize(
    ("name", "row", "wanted"),
    [
        (
            "aime24",
            {"id": 60, "problem": " p ", "solution": "s", "answer": "204", "year": "2024"},
            {"id": "aime24/60", "problem": "p", "answer": "204", "source": "aime24"},
        ),
        (
            "aime24",
            {"ID": "2024-I-1", "Problem": "p", "Solution": "s", "Answer": 25},
            {"id": "aime24/2024-I-1", "problem": "p", "answer": "25", "source": "aime24"},
        ),
        ("aime25", {"question": "q", "answer": "070"}, {"problem": "q", "answer": "70"}),
        ("aime25", {"question": "q", "answer": r"336^\circ"}, {"answer": "336"}),
        (
            "gsm8k",
            {"question": "q", "answer": "5*3=<<5*3=15>>15\n#### 1,015"},
            {"problem": "q", "answer": "1015"},
        ),
        (
            "math",
            {"problem": "p", "level": "Level 5", "type": "Algebra", "solution": SOLUTION},
            {"answer": r"\frac{1}{2}", "level": "Level 5", "subject": "Algebra"},
        ),
        ("polaris", {"problem": "p", "answer": "7", "difficulty": "4/8"}, {"level": "4/8"}),
        (
            "dapo_math",
            {
                "data_source": "math_dapo",
                "prompt": [{"role": "user", "content": DAPO_PROMPT}],
                "ability": "MATH",
                "reward_model": {"ground_truth": "2", "style": "rule"},
                "extra_info": {"index": "9a9b"},
            },
            {"id": "dapo_math/9a9b", "problem": "Compute $1+1$.\n\nIt is even.", "answer": "2"},
        ),
        (
            "olympiadbench",
            {
                "id": 1606,
                "subfield": "Geometry",
                "context": None,
                "question": "q",
                "solution": ["s"],
                "final_answer": [r"$\frac{1}{2}$"],
                "is_multiple_answer": False,
                "unit": None,
                "answer_type": "Numerical",
                "error": None,
            },
            {"id": "olympiadbench/1606", "problem": "q", "answer": r"\frac{1}{2}"},
        ),
        (
            "tldr",
            {"prompt": f"SUBREDDIT: r/x\n\nTITLE: T\n\nPOST: {POST}\n\nTL;DR:", "completion": " c"},
            {"title": "T", "text": f"T\n\n{POST}"},
        ),
        (
            "tldr",
            {"prompt": f"TITLE: T\n\nPOST: a\nTITLE: b\nPOST: {POST}\nTL;DR: or\n\nTL;DR:"},
            {"title": "T", "text": f"T\n\na\nTITLE: b\nPOST: {POST}\nTL;DR: or"},
        ),
        ("tldr", {"id": "x", "title": "T", "post": POST, "summary": "s"}, {"text": f"T\n\n{POST}"}),
        ("tldr", {"id": "x", "title": float("nan"), "post": POST}, {"text": POST}),
        (
            "arxiv_abstract",
            {"article_id": "1", "abstract_text": ["<S> a b </S>"] * 20, "token_count": 40},
            {"id": "arxiv_abstract/1", "text": " ".join(["a b"] * 20)},
        ),
    ],
)  # fmt: skip
def test_convert_on_a_published_row_then_gives_the_tasks_own(
    name: str, row: dict[str, Any], wanted: dict[str, Any]
) -> None:
    converted = _converted(name, row)
    assert {key: converted[key] for key in wanted} == wanted


@pytest.mark.parametrize(
    ("name", "row", "reason"),
    [
        ("aime24", {"id": 1, "problem": "p", "answer": "1000"}, "answer_not_0_to_999"),
        ("aime24", {"id": 1, "problem": "p", "answer": r"\frac{1}{2}"}, "answer_not_0_to_999"),
        ("aime25", {"question": "", "answer": "1"}, "no_question"),
        ("gsm8k", {"question": "q", "answer": "15"}, "no_final_answer"),
        ("math", {"problem": "p [asy] q", "solution": r"\boxed{1}"}, "needs_figure"),
        ("math", {"problem": "p", "solution": "none"}, "no_boxed_answer"),
        ("olympiadbench", {"question": "q <img_1>", "final_answer": ["1"]}, "needs_image"),
        ("olympiadbench", WITH_ERROR, "needs_tolerance"),
        ("olympiadbench", {"question": "q", "final_answer": ["1", "2"]}, "not_one_final_answer"),
        ("olympiadbench", {"question": "q", "final_answer": None}, "no_final_answer"),
        ("polaris", {"problem": "p", "answer": float("nan")}, "no_answer"),
        ("polaris", {"problem": "p", "answer": float("-inf")}, "no_answer"),
        ("dapo_math", {"prompt": "p", "extra_info": None}, "no_index"),
        ("dapo_math", NO_TRUTH, "no_ground_truth"),
        ("tldr", {"prompt": "POST: short\nTL;DR:"}, "post_too_short"),
        ("arxiv_abstract", {"article_id": "1", "abstract_text": ["short"]}, "abstract_too_short"),
    ],
)  # fmt: skip
def test_convert_on_a_row_that_cannot_be_judged_then_refuses_it_with_a_reason(
    name: str, row: dict[str, Any], reason: str
) -> None:
    with pytest.raises(RefusedRowError) as refused:
        find_dataset(name).convert(row)
    assert refused.value.reason == reason


def test_known_datasets_when_listed_then_each_is_complete() -> None:
    known = known_datasets()
    assert set(known) >= MINE
    for name, dataset in known.items():
        assert name == dataset.name
        assert set(dataset.splits) <= set(SPLITS)
        assert dataset.format_source.startswith("https://")
        assert dataset.licence
        assert dataset.citation
        assert set(dataset.contamination_fields) <= set(dataset.schema.model_fields)


def test_find_dataset_when_the_name_is_unknown_then_suggests_one() -> None:
    with pytest.raises(NotFoundError, match="did you mean 'gsm8k'"):
        find_dataset("gsm8")
