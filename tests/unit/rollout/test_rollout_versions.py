import pytest

from troupe.errors import ConflictError, VersionNotLoadedError
from troupe_rollout.engines.cpu.versions import Slot
from troupe_rollout.engines.versions import VersionTable


def slot(version: int, digest: str = "") -> Slot:
    return Slot("shared", version, digest or f"d{version}", module=None, lane=None)  # pyright: ignore


def table_at(*versions: int) -> VersionTable[Slot]:
    table = VersionTable[Slot]("shared", max_versions=2)
    for version in versions:
        table.stage(slot(version))
        table.activate(version)
    return table


def test_new_table_serves_nothing():
    table = VersionTable[Slot]("shared", 2)
    assert table.state().active_version is None
    with pytest.raises(VersionNotLoadedError):
        table.serving(0)


def test_staged_version_scores_but_does_not_serve_until_it_is_activated():
    table = table_at(0)
    table.stage(slot(1))
    assert table.scoring(1).policy_version == 1
    with pytest.raises(VersionNotLoadedError, match=r"Version 1 .* staged: \[1\], active: 0"):
        table.serving(1)
    table.activate(1)
    assert table.serving(1) is table.scoring(1)
    assert table.serving(0).policy_version == 0, "the old version still answers"


def test_activate_twice_changes_nothing():
    table = table_at(0, 1)
    table.activate(1)
    assert table.state().loaded_versions == (0, 1)
    assert table.state().active_version == 1


def test_activate_beyond_the_bound_unloads_the_oldest_and_never_the_active():
    table = table_at(5, 7, 6)
    assert table.state().loaded_versions == (6, 7)
    assert table.state().active_version == 6


def test_stage_of_a_version_two_behind_the_active_one_is_refused():
    table = table_at(4, 5)
    table.stage(slot(4, "a trainer that died before it committed 5"))
    with pytest.raises(ConflictError, match="older than the active version 5"):
        table.stage(slot(3))
    assert table.state().active_version == 5


def test_versions_that_leave_the_table_are_told_to_its_owner():
    dropped: list[int] = []
    table = VersionTable[Slot](
        "shared", 2, on_drop=lambda slot: dropped.append(slot.policy_version)
    )
    for version in (0, 1, 2):
        table.stage(slot(version))
        table.activate(version)
    table.stage(slot(3))
    table.discard(3)
    assert dropped == [0, 3]


def test_stage_beyond_the_bound_forgets_the_oldest_staged():
    table = table_at(0)
    for version in (1, 2, 3):
        table.stage(slot(version))
    assert table.state().staged_versions == (2, 3)


def test_discard_of_the_active_version_is_refused_but_drops_its_restaged_copy():
    table = table_at(0)
    table.stage(slot(0, "other"))
    with pytest.raises(ConflictError):
        table.discard(0)
    assert table.scoring(0).tensor_digest == "d0"


def test_discard_twice_is_idempotent():
    table = table_at(0, 1)
    table.discard(0)
    table.discard(0)
    assert table.state().loaded_versions == (1,)


def test_activate_of_a_restaged_version_replaces_its_tensors():
    table = table_at(0)
    table.stage(slot(0, "other"))
    assert table.state().tensor_digest == "d0"
    table.activate(0)
    assert table.state().tensor_digest == "other"
    assert table.holds(0, "other") and not table.holds(0, "d0")


def test_room_is_made_by_the_oldest_idle_version_and_never_by_the_active_one():
    table = VersionTable[Slot]("shared", max_versions=3)
    for version in (4, 5, 6):
        table.stage(slot(version))
        table.activate(version)
    table.make_room(7)
    assert table.state().loaded_versions == (5, 6)
    table.activate(5)
    table.stage(slot(6, "learnt again"))
    table.make_room(7)
    assert (table.state().loaded_versions, table.state().staged_versions) == ((5,), (6,))


def test_room_for_a_version_is_first_that_of_its_earlier_attempt():
    table = table_at(0)
    table.stage(slot(1))
    table.make_room(1)
    assert (table.state().loaded_versions, table.state().staged_versions) == ((0,), ())


def test_room_for_a_version_two_behind_the_active_one_is_refused():
    with pytest.raises(ConflictError, match="older than the active version 5"):
        table_at(4, 5).make_room(3)
