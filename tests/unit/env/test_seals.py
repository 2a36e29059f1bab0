"""A seal fits the one state that it was made of, on every machine."""

import copy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from troupe.episodes.sealed import SealedState, seal_with, with_seal
from troupe.errors import InvalidArgumentError, StateChangedError
from troupe_env.families import Families
from troupe_env.seals import Seals

SEALS = Seals("plan_path", '{"size": 6}')


@given(st.binary(max_size=40), st.binary(max_size=40))
def test_seal_when_the_state_is_another_then_refused(state: bytes, other: bytes) -> None:
    seal = SEALS.sealed(state).seal
    assert SEALS.vouches(state, seal)
    if other != state:
        with pytest.raises(StateChangedError, match="plan_path"):
            SEALS.vouches(other, seal)


@pytest.mark.parametrize(
    "others", [Seals("sokoban", '{"size": 6}'), Seals("plan_path", '{"size": 7}')]
)
def test_seal_when_of_another_task_or_its_parameters_then_refused(others: Seals) -> None:
    with pytest.raises(StateChangedError):
        SEALS.vouches(b"s", others.sealed(b"s").seal)


def test_seal_when_task_and_parameters_share_letters_then_they_differ() -> None:
    assert Seals("ab", "c").sealed(b"s").seal != Seals("a", "bc").sealed(b"s").seal


@pytest.mark.parametrize("seal", [b"", b"\x02", b"\x02of a newer version"])
def test_seal_when_none_or_of_another_version_then_it_says_nothing(seal: bytes) -> None:
    assert not SEALS.vouches(b"s", seal)


@pytest.mark.parametrize("seal", [b"\x01", b"\x01" + bytes(16), b"\x01" + bytes(99)])
def test_seal_when_cut_or_made_up_then_refused(seal: bytes) -> None:
    with pytest.raises(InvalidArgumentError):
        SEALS.vouches(b"s", seal)


def test_seal_when_made_by_any_process_then_these_bytes() -> None:
    """Replicas of other builds check it: what it is taken over changes with its version alone."""
    assert SEALS.sealed(b"s").seal.hex() == "01eb8c4d492e689ecb47823ba2c953280a"


def test_families_when_parameters_are_spelled_otherwise_then_the_seals_agree() -> None:
    one, two = (Families(2).get("plan_path", text) for text in ('{"size": 6}', ' {"size":6} '))
    assert two.seals.vouches(b"s", one.seals.sealed(b"s").seal)


def test_state_when_it_carries_a_seal_then_equals_its_bytes_and_copies_keep_it() -> None:
    state = with_seal(b"s", b"seal")
    assert isinstance(state, SealedState) and state == b"s"
    copies = (copy.copy(state), copy.deepcopy(state))
    assert [(bytes(it), seal_with(it)) for it in copies] == [(b"s", b"seal")] * 2
    assert with_seal(b"s", b"") == b"s" and seal_with(b"s") == b""
