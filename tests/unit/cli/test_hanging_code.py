"""A command that waits for code of a user says where that code is."""

import threading

from troupe.cli.hanging import telling_where

LONG_S = 30.0


def test_command_when_a_users_code_goes_on_then_its_line_is_told_again_and_again() -> None:
    told: list[str] = []
    has_told = threading.Event()

    def tell(text: str) -> None:
        told.append(text)
        if sum("in endless" in line for line in told) == 2:
            has_told.set()

    def endless() -> bool:
        return has_told.wait(LONG_S)

    assert telling_where(endless, "task 't' still plays", tell, every_s=0.01)
    line = next(line for line in told if "in endless" in line)
    assert line.startswith("task 't' still plays after 0 s: at tests/unit/cli/test_hanging_code.py")
    assert line.endswith("`return has_told.wait(LONG_S)`")


def test_command_when_the_code_ends_in_time_then_nothing_is_told() -> None:
    told: list[str] = []
    assert telling_where(lambda: 3, "task 't' still plays", told.append) == 3
    assert not told
