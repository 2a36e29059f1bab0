"""What a bare gRPC status means to a caller."""

import grpc
import grpc.aio
import pytest

from troupe.clients import RolloutClient
from troupe.clients.channel import CORE_FAILED, MAX_LOST
from troupe.errors import DeadlineError, TroupeError, UnavailableError, error_for_code


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (grpc.StatusCode.UNAVAILABLE, UnavailableError),
        (grpc.StatusCode.CANCELLED, UnavailableError),  # the transport broke under the call
        (grpc.StatusCode.DEADLINE_EXCEEDED, DeadlineError),
    ],
)
def test_status_when_the_machine_failed_then_a_retry_may_help(
    code: grpc.StatusCode, kind: type[TroupeError]
) -> None:
    assert error_for_code(code) is kind
    assert kind.retryable


def test_status_when_unknown_then_is_not_retried() -> None:
    assert error_for_code(grpc.StatusCode.UNIMPLEMENTED) is TroupeError
    assert not TroupeError.retryable


@pytest.mark.parametrize(("num_lost", "arrives"), [(MAX_LOST, True), (MAX_LOST + 1, False)])
async def test_call_when_its_answer_got_lost_in_the_core_then_is_made_again(
    num_lost: int, arrives: bool
) -> None:
    lost = grpc.aio.AioRpcError(
        grpc.StatusCode.INTERNAL, grpc.aio.Metadata(), grpc.aio.Metadata(), details=CORE_FAILED
    )
    calls: list[float] = []

    async def attempt(left_s: float) -> str:
        calls.append(left_s)
        if len(calls) <= num_lost:
            raise lost
        return "done"

    async with RolloutClient("127.0.0.1:1") as client:
        call = client._call("UpdateWeights", attempt, timeout_s=60, retries=False)
        if arrives:
            assert await call == "done"
        else:
            with pytest.raises(UnavailableError, match="Send it again"):
                await call
    assert len(calls) == MAX_LOST + 1
