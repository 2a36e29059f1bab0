"""The table of recorded runs: medians and 95th percentiles by hand, failures named, gaps named."""

import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[3]
sys.path.insert(0, str(ROOT / "scripts"))

from reliability_table import BEGIN, END, add, main, tables  # noqa: E402


def run(serving_s: float | None, **more: Any) -> dict[str, Any]:
    return {
        "case": "kill-trainer-mid-learn",
        "victim": "trainer",
        "phase": "mid-learn",
        "how": "kill",
        "serving_s": serving_s,
        "progress_s": 1.0,
        "load": 2.0,
        "num_lost": 0,
        "num_duplicated": 0,
        "same_weights": True,
        "faults": [],
        **more,
    }


def test_tables_when_a_case_ran_twice_then_hold_median_and_95th_percentile():
    text = tables([run(2.0), run(4.0)])
    assert text.startswith("2 runs of 1 of the ")
    assert " cases, 0 failed; groups lost 0, groups trained twice 0" in text
    assert "| trainer | kill | 2 | 3.0 / 3.9 | 1.0 / 1.0 | 30 |" in text
    assert "| mid-learn | trainer | kill | 2 | 3.0 / 3.9 | 1.0 / 1.0 | 0 | 0 | equal | ok |" in text


def test_tables_when_a_run_went_wrong_then_say_so():
    wrong = run(None, num_lost=3, same_weights=False, faults=["groups were lost"])
    text = tables([wrong])
    assert "1 failed; groups lost 3" in text
    assert "in 0 of 1" in text
    assert "| - | 1.0 | 3 | 0 | **differ** | groups were lost |" in text


def test_tables_when_one_run_of_a_case_was_resumed_then_only_its_weights_are_compared():
    rested = run(1.0, same_weights=False, ended="job t ended failed")
    resumed = run(1.0, ended="job t ended failed")
    assert "| 0 | 0 | equal | job t ended failed |" in tables([rested, resumed])
    assert "| 0 | 0 | - | job t ended failed |" in tables([rested])


def test_tables_when_cases_did_not_run_then_name_them():
    text = tables([run(1.0)])
    missing = text[text.index("Not run in this recording") :]
    assert "`kill-redis-mid-learn`" in missing
    assert "`kill-sandbox-mid-program`" in missing
    assert "`kill-trainer-mid-learn`" not in missing


def test_main_when_run_twice_then_replaces_only_what_is_generated(tmp_path: Path):
    recorded, page = tmp_path / "chaos.jsonl", tmp_path / "page.md"
    recorded.write_text(f"{json.dumps(run(1.0))}\n")
    page.write_text(f"Before.\n{BEGIN}\nold\n{END}\nAfter.\n")
    main(recorded, page)
    once = page.read_text()
    main(recorded, page)
    assert page.read_text() == once
    assert once.startswith(f"Before.\n{BEGIN}\n1 runs of 1 of the ")
    assert once.endswith(f"{END}\nAfter.\n")
    assert "old" not in once


def test_add_when_a_part_joins_then_every_run_stays_and_the_page_says_where_they_are_from(
    tmp_path: Path,
):
    recorded, part = tmp_path / "chaos.jsonl", tmp_path / "part.jsonl"
    recorded.write_text(f"{json.dumps(run(1.0))}\n")
    cut = run(9.0, case="power-cut-machine-mid-learn", victim="machine", how="power cut")
    wrong = run(2.0, faults=["no event disk.resolved"])
    part.write_text(f"{json.dumps(cut)}\n{json.dumps(wrong)}\n")
    add(recorded, part, "abc1234")
    lines = [json.loads(line) for line in recorded.read_text().splitlines()]
    assert lines == [run(1.0), {**cut, "added_of": "abc1234"}, {**wrong, "added_of": "abc1234"}]
    text = tables(lines)
    assert text.startswith("3 runs of 2 of the ")
    assert "1 failed" in text
    assert "2 of the runs, of 2 cases, were recorded by themselves, of commit abc1234." in text
    assert "| machine | power cut | 1 | 9.0 | 1.0 |  |" in text
