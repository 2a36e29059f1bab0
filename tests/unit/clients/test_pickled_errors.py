"""Errors cross processes, as those of a ``multiprocessing.Pool`` do."""

import pickle
from collections.abc import Iterator

import pytest

from troupe.clients.rest.errors import TooManyError
from troupe.errors import TroupeError, all_errors
from troupe.spec import Issue, SpecInvalidError
from troupe_router.cluster.api import RefusedError
from troupe_trainer.learn.outcome import NonFiniteError


def one_of_each() -> Iterator[TroupeError]:
    yield SpecInvalidError([Issue("/steps", "wrong"), Issue("/seed", "wrong too")], source="a.yaml")
    yield TooManyError("wait", retry_after_s=7.0)
    yield NonFiniteError("not a number", minibatch=3)
    yield RefusedError("no", 403)
    for cls in all_errors():
        if cls.__init__ is TroupeError.__init__:
            yield cls("what, where, what to do", pointer="/a/b")


@pytest.mark.parametrize("error", [*one_of_each()], ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("protocol", [0, pickle.HIGHEST_PROTOCOL])
def test_error_when_pickled_then_it_is_the_same_on_the_other_side(
    error: TroupeError, protocol: int
) -> None:
    read = pickle.loads(pickle.dumps(error, protocol))  # noqa: S301 - written in this line
    assert (type(read), str(read), vars(read)) == (type(error), str(error), vars(error))
