"""Pieces of a decoded text: one a token, and no more work than tokens."""

from hypothesis import given
from hypothesis import strategies as st

from troupe_router.run.token_texts import pieces


class Bytes:
    """A tokenizer whose tokens are bytes; it counts what it decodes, and strips a leading space."""

    def __init__(self) -> None:
        self.num_decoded = 0

    def decode(self, ids: list[int], *, skip_special_tokens: bool) -> str:
        assert not skip_special_tokens
        self.num_decoded += len(ids)
        return bytes(ids).decode("utf-8", "replace").removeprefix(" ")


@given(st.text(max_size=60))
def test_pieces_when_joined_then_are_the_text_and_a_character_is_in_one_piece(text: str) -> None:
    ids = list(text.encode())
    found = pieces(Bytes(), ids)
    assert len(found) == len(ids)
    assert "".join(found) == text.removeprefix(" ")
    assert [piece for piece in found if piece] == list(text.removeprefix(" "))


@given(st.lists(st.integers(0, 255), max_size=200))
def test_pieces_when_the_bytes_are_no_text_then_the_work_is_bounded(ids: list[int]) -> None:
    tokenizer = Bytes()
    assert len(pieces(tokenizer, ids)) == len(ids)
    assert tokenizer.num_decoded <= 12 * len(ids)
