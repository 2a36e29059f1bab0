"""Which paths of a machine are cut out of what is published."""

import pytest

from troupe.publishing.scrub import without_paths


@pytest.mark.parametrize(
    ("text", "published"),
    [
        ("/home/me/models/Qwen", "Qwen"),
        ("/home/me/my models/Qwen/", "Qwen/"),
        ("~/runs/rewards.py:paid", "rewards.py:paid"),
        ("scout=/home/me/a,walker=/home/me/b", "scout=a,walker=b"),
        ("/home/me/a,walker=http://127.0.0.1:8000/v1", "a,walker=http://127.0.0.1:8000/v1"),
        ("--data=/home/me/rows.jsonl", "--data=rows.jsonl"),
        ("file:///home/me/rows.jsonl", "rows.jsonl"),
        ("--data=file:///home/me/rows.jsonl", "--data=rows.jsonl"),
        ("see file:///home/me/rows.jsonl", "see rows.jsonl"),
        ("/start", "/start"),
        ("org/model", "org/model"),
        ("https://example.org/a/b", "https://example.org/a/b"),
        ("Write to /tmp/out/x and stop.", "Write to /tmp/out/x and stop."),
        ("/usr/bin/env python\nprint()", "/usr/bin/env python\nprint()"),
    ],
)
def test_without_paths_when_a_text_holds_one_then_its_last_part_is_left(
    text: str, published: str
) -> None:
    assert without_paths({"x": [text]}) == {"x": [published]}
