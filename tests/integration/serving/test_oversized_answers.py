"""An answer above gRPC's limit is refused for its size, and not taken for a full queue."""

import grpc
import grpc.aio
import pytest

from troupe.clients import RolloutClient
from troupe.clients.channel import MAX_MESSAGE_BYTES
from troupe.errors import TroupeError


async def test_call_when_its_answer_is_too_large_then_is_made_once_and_names_the_size() -> None:
    size = MAX_MESSAGE_BYTES + 1

    async def answer(request: bytes, context: object) -> bytes:
        calls.append(request)
        return bytes(size)

    calls: list[bytes] = []
    server = grpc.aio.server(options=[("grpc.max_send_message_length", -1)])
    method = grpc.unary_unary_rpc_method_handler(answer)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("s", {"m": method}),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        async with RolloutClient(f"127.0.0.1:{port}", retry_for_s=3) as client:
            with pytest.raises(TroupeError, match=f"larger.*{size}.*group_size") as caught:
                await client._call(
                    "Generate",
                    lambda left_s: client._channel.unary_unary("/s/m")(b"", timeout=left_s),
                    timeout_s=30,
                )
    finally:
        await server.stop(None)
    assert len(calls) == 1
    assert not caught.value.retryable
