"""The one retry loop and its schedule."""

import asyncio
import time

import pytest

from troupe.errors import InvalidArgumentError, TroupeError, UnavailableError
from troupe.retry import STEADY, Backoff, retry

NOW = Backoff(0.0, 0.0)


class Attempts:
    """Fails with ``errors`` one after another, then answers with the number of attempts."""

    def __init__(self, *errors: BaseException) -> None:
        self.errors = list(errors)
        self.count = 0

    async def __call__(self) -> int:
        self.count += 1
        if self.errors:
            raise self.errors.pop(0)
        return self.count


def test_backoff_when_failures_add_up_then_pauses_double_up_to_the_longest() -> None:
    backoff = Backoff(0.1, 0.5, STEADY)
    assert [backoff.pause_s(n) for n in (1, 2, 3, 4, 10_000)] == [0.1, 0.2, 0.4, 0.5, 0.5]


def test_backoff_when_a_least_is_given_then_it_is_jittered_too() -> None:
    pauses = {Backoff(0.1, 1.0).pause_s(1, at_least_s=4.0) for _ in range(200)}
    assert len(pauses) > 100
    assert min(pauses) >= 2.0
    assert max(pauses) <= 6.0


async def test_retry_when_failures_may_pass_then_the_answer_comes() -> None:
    attempts = Attempts(UnavailableError("a"), UnavailableError("b"))
    assert await retry(attempts, NOW) == 3


@pytest.mark.parametrize("error", [InvalidArgumentError("wrong"), ValueError("a fault")])
async def test_retry_when_a_failure_cannot_pass_then_it_is_raised_at_once(error: Exception) -> None:
    attempts = Attempts(error)
    with pytest.raises(type(error)):
        await retry(attempts, NOW)
    assert attempts.count == 1


async def test_retry_when_attempts_are_used_up_then_the_last_error_is_raised() -> None:
    attempts = Attempts(*(UnavailableError(str(n)) for n in range(9)))
    with pytest.raises(UnavailableError, match="2"):
        await retry(attempts, NOW, max_attempts=3)
    assert attempts.count == 3


async def test_retry_when_the_next_pause_would_end_too_late_then_it_is_not_begun() -> None:
    attempts = Attempts(*(UnavailableError(str(n)) for n in range(9)))
    began = time.monotonic()
    with pytest.raises(UnavailableError):
        await retry(attempts, Backoff(60.0, 60.0, STEADY), within_s=30.0)
    assert attempts.count == 1
    assert time.monotonic() - began < 10.0


async def test_retry_when_a_failure_asks_for_too_long_a_pause_then_it_is_raised() -> None:
    attempts = Attempts(UnavailableError("later"))
    with pytest.raises(UnavailableError):
        await retry(attempts, NOW, within_s=5.0, asks_for_s=lambda _: 9.0)
    assert attempts.count == 1


async def test_retry_when_cancelled_in_a_pause_or_an_attempt_then_nothing_is_tried_again() -> None:
    attempts = Attempts(*(UnavailableError(str(n)) for n in range(9)))
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await retry(attempts, Backoff(60.0, 60.0))
    assert attempts.count == 1
    stray = Attempts(asyncio.CancelledError())
    with pytest.raises(asyncio.CancelledError):
        await retry(stray, NOW, may_pass=lambda error: isinstance(error, TroupeError))
    assert stray.count == 1
