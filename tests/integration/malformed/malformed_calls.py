"""Calls that no client of Troupe makes, by the thousand, and what became of them.

Only loopback addresses are called. Each call has a deadline, and the number of calls is given.
"""

import asyncio
import contextlib
import random
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import grpc
import grpc.aio
from google.protobuf.descriptor import FieldDescriptor, MethodDescriptor, ServiceDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from troupe.clients.channel import CORE_FAILED
from troupe.clients.status import REASON_KEY

CALL_S = 8.0
"""Deadline of one call; machine time for a sound answer is milliseconds."""
HANG_S = 2.0
"""A call or connection on which nothing more is said ends after this time."""
IN_FLIGHT = 48
BUGS = ("INTERNAL", "UNKNOWN", "DATA_LOSS")
"""Statuses that a malformed call must not get from a servicer. (DATA_LOSS: see ``of_weights``.)"""
NEVER_MESSAGE = b"\x07"
"""Bytes that make all that follows undecodable: field 0, of a wire type that does not exist."""
ODD_TEXTS = (
    "",
    "\x00\x01\x7f",
    "\u2028\U0001f98a\n",
    "ö" * 3000,
    "x" * 100_000,
    "../" * 30,
    "[" * 5000,
    '{"\\ud800": "\\udfff"}',
    '{"size\\u0001": 4}',
    '{"size": 1e999}',
    '{"' + "k" * 50_000 + '": 1}',
)
"""Put in the place of a sound text."""


@dataclass
class Outcome:
    """How calls ended: status name to count, and the details of those that look like bugs."""

    statuses: Counter[str] = field(default_factory=Counter)
    bugs: list[str] = field(default_factory=list)

    def add(self, what: str, error: grpc.aio.AioRpcError | None) -> None:
        name = "OK" if error is None else error.code().name
        self.statuses[name] += 1
        # The client's own core says so when an answer comes before all was sent.
        if error is None or name not in BUGS or error.details() == CORE_FAILED:
            return
        reasons = dict(error.trailing_metadata() or ())
        of_weights = name == "DATA_LOSS" and reasons.get(REASON_KEY) == "WEIGHTS_REJECTED"
        if not of_weights and len(self.bugs) < 20:
            self.bugs.append(f"{what}: {name} {error.details()}")


@dataclass(frozen=True)
class Target:
    """A server, one of its services, and sound request bytes by method, to be mutated.

    ``guarded`` are methods with effects that end a job: they get bytes that are never a message.
    """

    address: str
    service: ServiceDescriptor
    samples: dict[str, bytes]
    guarded: frozenset[str] = frozenset()
    max_bytes: int = 64 << 20


async def attack(target: Target, num_calls: int, seed: int) -> Outcome:
    """``num_calls`` malformed calls of all sorts to ``target``."""
    rng = random.Random(seed)
    outcome = Outcome()
    options = [("grpc.max_send_message_length", -1), ("grpc.use_local_subchannel_pool", 1)]
    async with grpc.aio.insecure_channel(target.address, options=options) as channel:
        attacker = _Attacker(target, channel, rng, outcome)
        left = iter(range(num_calls))

        async def work() -> None:
            for number in left:
                await attacker.one(number)

        await asyncio.gather(*(work() for _ in range(IN_FLIGHT)))
    return outcome


class _Attacker:
    def __init__(
        self, target: Target, channel: grpc.aio.Channel, rng: random.Random, outcome: Outcome
    ) -> None:
        self._target, self._channel, self._rng, self._outcome = target, channel, rng, outcome
        self._methods: Sequence[MethodDescriptor] = target.service.methods
        self._host, _, port = target.address.rpartition(":")
        self._port = int(port)

    async def one(self, number: int) -> None:
        if number == 0:
            return await self._oversized()
        kinds: list[tuple[int, Callable[[], Awaitable[None]]]] = [
            (40, self._random_bytes),
            (30, self._mutated),
            (10, self._odd_text),
            (5, self._unknown_method),
            (8, self._wrong_shape),
            (6, self._broken_stream),
            (4, self._cancelled),
            (3, self._other_services),
            (2, self._raw_bytes),
        ]
        weights, attacks = zip(*kinds, strict=True)
        return await self._rng.choices(attacks, weights)[0]()

    async def _random_bytes(self) -> None:
        method = self._rng.choice(self._methods)
        await self._call(method, self._bytes_for(method, self._random()))

    async def _mutated(self) -> None:
        method = self._rng.choice(self._methods)
        data = bytearray(self._target.samples.get(method.name, b""))
        for _ in range(self._rng.randint(1, 4)):
            at = self._rng.randrange(len(data) + 1)
            match self._rng.randrange(4):
                case 0 if at < len(data):
                    data[at] = self._rng.randrange(256)
                case 1:
                    del data[at:]
                case 2:
                    data[at:at] = self._rng.randbytes(self._rng.randint(1, 9))
                case _:
                    del data[at : at + self._rng.randint(1, 5)]
        await self._call(method, self._bytes_for(method, bytes(data)))

    async def _odd_text(self) -> None:
        """A sound request, but for one of its texts."""
        method = self._rng.choice(self._methods)
        message = GetMessageClass(method.input_type)()
        message.ParseFromString(self._target.samples.get(method.name, b""))
        if places := list(_texts(message)):
            inner, name = self._rng.choice(places)
            setattr(inner, name, self._rng.choice(ODD_TEXTS))
        await self._call(method, self._bytes_for(method, message.SerializeToString()))

    async def _unknown_method(self) -> None:
        name = self._target.service.full_name
        path = self._rng.choice(
            [
                f"/{name}/Nothing",
                "/troupe.api.none.v1.None/Reset",
                "/",
                "//",
                f"/{name}",
                "/x" * 500,
            ]
        )
        await self._unary(path, self._random())

    async def _wrong_shape(self) -> None:
        """A stream to a unary method, one message to a stream's, or no message at all."""
        method = self._rng.choice(self._methods)
        if method.client_streaming:
            return await self._unary(_path(method), self._random())
        parts = [
            self._bytes_for(method, self._random()) for _ in range(self._rng.choice([0, 2, 5]))
        ]
        return await self._stream(_path(method), parts)

    async def _broken_stream(self) -> None:
        """Parts of an upload in no order, cut off or left hanging until the deadline."""
        streams = [m for m in self._methods if m.client_streaming]
        if not streams:
            return await self._cancelled()
        method = self._rng.choice(streams)
        sample = self._target.samples.get(method.name, b"")
        parts = [
            self._rng.choice([sample, sample[: len(sample) // 2], self._random(), b""])
            for _ in range(self._rng.randint(1, 6))
        ]
        return await self._stream(_path(method), parts, hang=self._rng.random() < 0.05)

    async def _cancelled(self) -> None:
        method = self._rng.choice(self._methods)
        data = self._bytes_for(method, self._random())
        call = self._channel.unary_unary(_path(method))(data, timeout=CALL_S)
        await asyncio.sleep(self._rng.choice([0.0, 0.0005, 0.005]))
        call.cancel()
        with contextlib.suppress(asyncio.CancelledError, grpc.aio.AioRpcError):
            await call
        self._outcome.statuses["cancelled by us"] += 1

    async def _other_services(self) -> None:
        if self._rng.random() < 0.5:
            return await self._unary("/grpc.health.v1.Health/Check", NEVER_MESSAGE + self._random())
        path = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"
        return await self._stream(path, [self._random(), self._random()])

    async def _raw_bytes(self) -> None:
        """No gRPC at all: noise, HTTP/1.1, a broken HTTP/2 preface, or silence."""
        preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
        frame = self._rng.randbytes(9)
        said = self._rng.choice(
            [
                b"",
                self._rng.randbytes(400),
                b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
                preface[: self._rng.randrange(len(preface))],
                preface + frame + self._rng.randbytes(60),
                preface + b"\0\0\0\4\0\0\0\0\0" + b"\xff\xff\xff\1\5\0\0\0\1",
            ]
        )
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(HANG_S):
                reader, writer = await asyncio.open_connection(self._host, self._port)
                with contextlib.closing(writer):
                    writer.write(said)
                    await writer.drain()
                    await reader.read(64)
        self._outcome.statuses["raw"] += 1

    async def _oversized(self) -> None:
        method = next((m for m in self._methods if not m.client_streaming), self._methods[0])
        await self._unary(_path(method), bytes(self._target.max_bytes + 1), timeout_s=60.0)

    async def _call(self, method: MethodDescriptor, data: bytes) -> None:
        if method.client_streaming:
            await self._stream(_path(method), [data])
        else:
            await self._unary(_path(method), data)

    async def _unary(self, path: str, data: bytes, timeout_s: float = CALL_S) -> None:
        await self._ended(path, self._channel.unary_unary(path)(data, timeout=timeout_s))

    async def _stream(self, path: str, parts: Sequence[bytes], *, hang: bool = False) -> None:
        async def sent() -> AsyncIterator[bytes]:
            for part in parts:
                yield part
            if hang:
                await asyncio.sleep(HANG_S)

        if "Reflection" in path:
            call: Any = self._channel.stream_stream(path)(sent(), timeout=CALL_S)
            await self._ended(path, _drained(call))
        else:
            await self._ended(path, self._channel.stream_unary(path)(sent(), timeout=CALL_S))

    async def _ended(self, what: str, call: Awaitable[Any]) -> None:
        try:
            await call
        except grpc.aio.AioRpcError as error:
            self._outcome.add(what, error)
        except asyncio.CancelledError:
            # Once in some 100,000 streams gRPC cancels a call that nobody cancelled.
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            self._outcome.statuses["lost by the client"] += 1
        else:
            self._outcome.add(what, None)

    def _random(self) -> bytes:
        return self._rng.randbytes(self._rng.choice([0, 1, 2, 5, 20, 200, 5000]))

    def _bytes_for(self, method: MethodDescriptor, data: bytes) -> bytes:
        return NEVER_MESSAGE + data if method.name in self._target.guarded else data


async def _drained(call: Any) -> None:
    async for _ in call:
        pass


def _texts(message: Message) -> Iterator[tuple[Message, str]]:
    """Each text field in ``message`` and in what it holds, as (its message, its name)."""
    for known in message.DESCRIPTOR.fields:
        if known.type == FieldDescriptor.TYPE_STRING and not known.is_repeated:
            yield message, known.name
    for known, value in message.ListFields():
        if known.type == FieldDescriptor.TYPE_MESSAGE:
            for inner in value if known.is_repeated else [value]:
                yield from _texts(inner)


def _path(method: MethodDescriptor) -> str:
    return f"/{method.containing_service.full_name}/{method.name}"
