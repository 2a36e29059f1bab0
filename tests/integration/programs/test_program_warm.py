"""The warm run is over once the first fork may begin: no client of it is answered by script."""

from typing import Any

import pytest
from program_world import begun, program

from troupe.errors import ProgramBadCallError

REMEDY = "entry point, or set task.params.warm: false"
KEYED = {"seats": {"solver": {"key": True}}}


@pytest.mark.parametrize("changes", [{}, KEYED], ids=["by_address", "by_key"])
@pytest.mark.parametrize("shape", ["keeps_a_client", "keeps_a_client_quietly"])
def test_client_when_the_warm_run_built_it_then_its_run_is_refused_and_says_what_to_do(
    shape: str, changes: dict[str, Any]
) -> None:
    with program(shape, **changes) as environment:
        for index in range(2):
            with pytest.raises(ProgramBadCallError, match=REMEDY):
                begun(environment, index)


def test_client_when_the_warm_run_built_one_of_two_then_the_team_is_not_blamed() -> None:
    with program("keeps_one_of_two_clients") as environment:
        state = begun(environment)
        with pytest.raises(ProgramBadCallError, match=REMEDY):
            environment.step(state, "solver", "1")


def test_client_when_there_was_no_warm_run_then_it_may_be_kept() -> None:
    with program("keeps_a_client", warm=False) as environment:
        assert environment.step(begun(environment), "solver", "1").done
