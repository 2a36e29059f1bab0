"""An error reaches the caller as it was raised, whatever stands in its words."""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from troupe.api.trainer.v1 import trainer_pb2 as pb
from troupe.api.trainer.v1.trainer_pb2_grpc import (
    TrainerServiceServicer,
    add_TrainerServiceServicer_to_server,
)
from troupe.clients.status import MAX_POINTER_BYTES, MAX_WORDS_BYTES, sendable
from troupe.clients.trainer import TrainerClient
from troupe.errors import InvalidArgumentError

LONG = 100_000


class Refusing(TrainerServiceServicer):
    """Raises what it is told to."""

    error = InvalidArgumentError("")

    async def GetProgress(self, request: Any, context: Any) -> pb.GetProgressResponse:
        raise self.error


@pytest.fixture
async def refused(
    grpc_servers: Callable[..., Awaitable[str]],
) -> AsyncIterator[Callable[[InvalidArgumentError], Awaitable[InvalidArgumentError]]]:
    """A function that gives what a caller sees of an error."""
    servicer = Refusing()
    address = await grpc_servers(lambda it: add_TrainerServiceServicer_to_server(servicer, it))
    async with TrainerClient(address, retry_for_s=0) as client:

        async def seen(error: InvalidArgumentError) -> InvalidArgumentError:
            servicer.error = error
            with pytest.raises(InvalidArgumentError) as caught:
                await client.progress(timeout_s=30)
            return caught.value

        yield seen


@pytest.mark.parametrize(
    "pointer", ["/a/b", "/a\x01\nb", "/wörter/☃", "/100%25/ ", "/a b~1c", None]
)
async def test_pointer_when_it_has_any_characters_then_reaches_the_caller(
    refused: Any, pointer: str | None
):
    assert (await refused(InvalidArgumentError("no", pointer=pointer))).pointer == pointer


@pytest.mark.parametrize(
    ("message", "told"),
    [
        ("100 % of it\n\tis wröng\x00", "100 % of it\n\tis wröng\x00"),
        ("half a pair: \ud800", "half a pair: ?"),
        ("x" * LONG, f"{'x' * (MAX_WORDS_BYTES - 24)} ... (100000 characters)"),
    ],
)
async def test_message_when_it_does_not_fit_then_is_told_as_far_as_it_does(
    refused: Any, message: str, told: str
):
    assert (await refused(InvalidArgumentError(message))).message == told


async def test_error_when_all_of_it_is_too_long_then_still_is_what_was_raised(refused: Any):
    """Two-byte characters need six bytes each on the wire."""
    error = InvalidArgumentError("ö" * LONG, pointer="/" + "ö" * (MAX_POINTER_BYTES // 6 + 1))
    seen = await refused(error)
    assert seen.message.endswith("ö ... (100000 characters)")
    assert seen.pointer is None


@given(st.text(st.characters(exclude_categories=()), min_size=1, max_size=9), st.integers(1, 4000))
def test_words_when_cut_then_a_prefix_of_whole_characters_that_fits(part: str, times: int):
    sound = (part * times).encode("utf-8", "replace").decode()
    told = sendable(part * times)
    begun = told.removesuffix(f" ... ({len(sound)} characters)")
    assert sound.startswith(begun)
    assert begun and (told == sound or len(begun) < len(sound))
    # HTTP/2 carries printable ASCII but for the percent sign as it is (gRPC over HTTP2, Status).
    sent = sum(1 if 0x20 <= byte < 0x7F and byte != 0x25 else 3 for byte in told.encode())
    assert sent <= MAX_WORDS_BYTES
