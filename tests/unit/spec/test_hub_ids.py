"""Names of the models' hub."""

import pytest

from troupe.ids import is_hub_id


@pytest.mark.parametrize(
    ("text", "is_one"),
    [
        ("Qwen/Qwen3-0.6B", True),
        ("gpt2", True),
        ("a/b_c.d-e", True),
        ("a/b_", True),
        ("models/Qwen--X", False),
        ("org/na..me", False),
        ("org/name.", False),
        ("org-/name", False),
        ("org/name.git", False),
        ("a" * 96, True),
        ("a" * 97, False),
        ("a/b/c", False),
        ("a/", False),
        ("/a", False),
        ("../a", False),
        ("a b", False),
        ("a\n", False),
        ("mod\u00e8le", False),
        ("", False),
    ],
)
def test_hub_id_when_spelt_so_then_is_one_or_not(text: str, is_one: bool) -> None:
    assert is_hub_id(text) is is_one
    hub = pytest.importorskip("huggingface_hub.utils", reason="the hub's client is not installed")
    if is_one:
        hub.validate_repo_id(text)
