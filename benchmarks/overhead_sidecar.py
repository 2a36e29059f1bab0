"""The rollout process of `benchmarks.router_overhead`: a sidecar that can also call its engine.

Owns the child process and the line protocol to it: a command on standard input, one line of JSON on
standard output. Measures nothing by itself.
"""

import argparse
import asyncio
import contextlib
import json
import sys
import time
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
from transformers.utils import logging as transformers_logging

from benchmarks.call_stages import Instants
from benchmarks.rollout_fleet import TinyTrainer, sidecar
from benchmarks.router_calls import (
    CANDIDATES,
    Call,
    latencies,
    observation,
    sampling,
    throughput,
)
from troupe.api.records.v1.records_pb2 import Prompt
from troupe.api.rollout.v1 import rollout_pb2 as pb
from troupe.candidates import Candidate, GenerateRequest, Generation, generation_to_proto
from troupe.clients import codec
from troupe.clients.channel import SERVER_OPTIONS
from troupe.ids import prompt_digest
from troupe.runtime.engines.engine import Engine
from troupe.runtime.serving.memory import settle_heap
from troupe.spec.policy import FullSpec, PolicySpec
from troupe_rollout.engines.cpu import CpuEngine
from troupe_rollout.engines.sglang import SglangEngine
from troupe_rollout.engines.sglang.settings import SglangSettings
from troupe_rollout.servicer import RolloutServicer

FLOOR_METHOD = "/bench.Floor/Wait"
PLAIN_METHOD = "/bench.Plain/Generate"
FIXED_TOKEN_S = 0.005
MOST_TOKENS = 128
"""Tokens of the longest answer of the fixed-time engine; a longer one only takes longer."""
START_TIMEOUT_S = 300.0
DIRECT_TIMEOUT_S = 300.0
MOST_LINE_BYTES = 1 << 24
_instants = Instants()


class FixedTimeEngine(CpuEngine):
    """The cpu engine's prompts and versions with a generation that only takes its time."""

    name = "fixed"

    async def generate(self, request: GenerateRequest[Sequence[int]]) -> Generation:
        took_s = FIXED_TOKEN_S * request.sampling.max_new_tokens
        _instants.note()
        await asyncio.sleep(took_s)
        _instants.note()
        tokens = [5] * min(request.sampling.max_new_tokens, MOST_TOKENS)
        candidate = Candidate(tokens, [-1.0] * len(tokens), "w1 " * len(tokens), "length")
        return Generation(
            request.prompt,
            prompt_digest(request.prompt),
            [candidate] * request.num_candidates,
            request.policy_version,
            took_s,
        )


class Floor(grpc.GenericRpcHandler):  # pyright: ignore[reportMissingTypeArgument]
    """Answers as many bytes as a Generate call would, after as long as the engine takes."""

    def __init__(self, *, is_timed: bool) -> None:
        self._is_timed = is_timed
        self._answers: dict[int, bytes] = {}

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
        """The one method there is; the request begins with the number of tokens."""
        if handler_call_details.method != FLOOR_METHOD:
            return None

        async def wait(request: bytes, context: Any) -> bytes:
            num_tokens = int.from_bytes(request[:4], "little")
            _instants.note()
            if self._is_timed:
                await asyncio.sleep(FIXED_TOKEN_S * num_tokens)
            _instants.note()
            if num_tokens not in self._answers:
                self._answers[num_tokens] = _answer(num_tokens)
            return self._answers[num_tokens]

        return grpc.unary_unary_rpc_method_handler(wait)


class Plain(grpc.GenericRpcHandler):  # pyright: ignore[reportMissingTypeArgument]
    """Generate as a gRPC service must at least answer it: messages, rendering and the engine.

    It has no interceptor, check, deadline or count.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
        """The one method there is."""
        if handler_call_details.method != PLAIN_METHOD:
            return None
        return grpc.unary_unary_rpc_method_handler(
            _instants.around(self._generate),  # pyright: ignore[reportArgumentType]
            request_deserializer=pb.GenerateRequest.FromString,
            response_serializer=pb.GenerateResponse.SerializeToString,
        )

    async def _generate(self, request: pb.GenerateRequest, context: Any) -> pb.GenerateResponse:
        spec, seed = codec.sampling_from_proto(request.sampling)
        prompt = self._engine.render(request.policy, codec.chat_from_proto(request.chat))
        asked = GenerateRequest(
            request.policy, request.policy_version, prompt, request.num_candidates, spec, seed
        )
        return generation_to_proto(await self._engine.generate(asked))


def floor_request(num_tokens: int) -> bytes:
    """As many bytes as a Generate request has."""
    request = pb.GenerateRequest(
        policy="p",
        chat=codec.chat_to_proto(observation(1)),
        num_candidates=CANDIDATES,
        sampling=codec.sampling_to_proto(sampling(num_tokens), 1),
    )
    return num_tokens.to_bytes(4, "little") + b"x" * (request.ByteSize() - 4)


@dataclass
class OverheadSidecar:
    """The child, as the benchmark talks to it."""

    process: asyncio.subprocess.Process
    address: str = ""
    floor_address: str = ""

    async def direct(self, kind: str, n: int = 0, num_tokens: int = 0) -> list[float]:
        """Call the engine in its own process, for "latency" or "throughput".

        "cpu" is the process's time; "instants" are those noted since the last time.
        """
        assert self.process.stdin is not None
        self.process.stdin.write(f"{kind} {n} {num_tokens}\n".encode())
        await self.process.stdin.drain()
        return await self.read(DIRECT_TIMEOUT_S)

    async def read(self, timeout_s: float) -> Any:
        """The child's next line."""
        assert self.process.stdout is not None
        async with asyncio.timeout(timeout_s):
            line = await self.process.stdout.readline()
        if not line:
            raise RuntimeError("the sidecar of the benchmark ended; its log is above")
        return json.loads(line)


@contextlib.asynccontextmanager
async def spawn_sidecar(engine: str, model: Path, folder: Path) -> AsyncGenerator[OverheadSidecar]:
    """A child process that serves ``model`` until the block ends."""
    argv = [sys.executable, "-m", "benchmarks.overhead_sidecar", engine, str(model), str(folder)]
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        *argv, stdin=pipe, stdout=pipe, limit=MOST_LINE_BYTES
    )
    overhead = OverheadSidecar(process)
    try:
        overhead.address, overhead.floor_address = await overhead.read(START_TIMEOUT_S)
        yield overhead
    finally:
        assert process.stdin is not None
        process.stdin.close()  # its end of input is its end
        try:
            async with asyncio.timeout(60):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()


def _engine(name: str, folder: Path) -> Engine:
    if name == "sglang":
        return SglangEngine(SglangSettings(work_dir=str(folder / "work")))
    return CpuEngine() if name == "cpu" else FixedTimeEngine()


def _answer(num_tokens: int) -> bytes:
    """A Generate answer as the fixed engine's is."""
    num_tokens = min(num_tokens, MOST_TOKENS)
    candidate = pb.GeneratedCandidate(
        token_ids=[5] * num_tokens, logprobs=[-1.0] * num_tokens, text="w1 " * num_tokens
    )
    answer = pb.GenerateResponse(
        prompt=Prompt(token_ids=[5] * 64), candidates=[candidate] * CANDIDATES
    )
    return answer.SerializeToString()


async def serve(name: str, model: Path, folder: Path) -> None:
    """Serve, and answer commands until the input ends."""
    transformers_logging.disable_progress_bar()
    policy = PolicySpec(model=str(model), train=FullSpec())
    engine = _engine(name, folder)

    def direct(num_tokens: int) -> Call:
        async def call(number: int) -> None:
            prompt = engine.render("p", observation(number))
            spec = sampling(num_tokens)
            await engine.generate(GenerateRequest("p", 0, prompt, CANDIDATES, spec, number))

        return call

    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_callback(engine.stop)
        await engine.start({"p": policy})
        await engine.stage(TinyTrainer("p", policy, folder / "out").staged(0))
        await engine.activate("p", 0)
        noted: Any = _instants.around(RolloutServicer.Generate)
        RolloutServicer.Generate = noted
        item = await stack.enter_async_context(sidecar(engine, folder / "in"))
        floor = await stack.enter_async_context(
            _serving(Floor(is_timed=name == "fixed"), Plain(engine))
        )
        settle_heap()  # as a service does when it is up
        _say([item.address, floor])
        while line := await asyncio.to_thread(sys.stdin.readline):
            kind, n, num_tokens = line.split()
            call = direct(int(num_tokens))
            if kind == "latency":
                _say(await latencies(call, int(n)))
            elif kind == "throughput":
                _say([await throughput(call, int(n))])
            elif kind == "instants":
                _say(_instants.taken())
            else:
                _say([time.process_time()])


@contextlib.asynccontextmanager
async def _serving(*handlers: grpc.GenericRpcHandler) -> AsyncGenerator[str]:  # pyright: ignore[reportMissingTypeArgument]
    """A bare server, without any interceptor; its address."""
    server = grpc.aio.server(options=SERVER_OPTIONS)
    server.add_generic_rpc_handlers(handlers)
    address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    await server.start()
    try:
        yield address
    finally:
        await server.stop(None)


def _say(value: Any) -> None:
    print(json.dumps(value), flush=True)


def main() -> None:
    """Run as the child."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("engine", choices=["fixed", "cpu", "sglang"])
    parser.add_argument("model", type=Path)
    parser.add_argument("folder", type=Path)
    args = parser.parse_args()
    asyncio.run(serve(args.engine, args.model, args.folder))


if __name__ == "__main__":
    main()
