"""The replicas of `benchmarks.scale_sim`: real gRPC servers whose generation only takes its time.

Owns one process with many replicas, each a member of the platform like a real one. How long a call
takes is drawn from ``results/generate_latencies.json``: ``python -m benchmarks.scale_engines
record`` measures those on the cpu engine. Never loads a model while it simulates.
"""

import argparse
import asyncio
import json
import os
import random
import tempfile
import time
import uuid
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import grpc.aio

from benchmarks.random_model import save_random_model
from benchmarks.report import commit, machine, percentile
from benchmarks.rollout_fleet import TinyTrainer
from benchmarks.router_calls import observation, sampling
from troupe.api.records.v1 import records_pb2 as records
from troupe.api.rollout.v1 import rollout_pb2 as pb
from troupe.api.rollout.v1.rollout_pb2_grpc import (
    RolloutServiceServicer,
    add_RolloutServiceServicer_to_server,
)
from troupe.api.router.v1 import router_pb2 as router
from troupe.candidates import GenerateRequest
from troupe.clients.channel import SERVER_OPTIONS
from troupe.clients.router import RouterClient
from troupe.errors import VersionNotLoadedError
from troupe.ids import prompt_digest
from troupe.runtime.serving.interceptor import ErrorInterceptor
from troupe.runtime.serving.membership import Membership, ShouldExit
from troupe.spec.policy import FullSpec, PolicySpec
from troupe_rollout.engines.cpu import CpuEngine

LATENCIES = Path(__file__).parent / "results" / "generate_latencies.json"
POLICY = "p"
VOCABULARY = 151_936
PROMPT_TOKENS, COMPLETION_TOKENS = 96, 16
FILL = "have been that with this from they will would there their what about which when"
RECORDED_CALLS, RECORDED_IN_FLIGHT, RECORDED_CANDIDATES = 1500, 32, 4


@dataclass
class Latencies:
    """Shares of the mean, recorded in ``path``, stretched to a mean of ``mean_s``."""

    mean_s: float
    path: Path = LATENCIES
    shares: list[float] = field(init=False)

    def __post_init__(self) -> None:
        """Read what was recorded."""
        self.shares = json.loads(self.path.read_text())["shares"]

    def draw(self, seed: int) -> float:
        """The time that a call takes, seconds: between two recorded quantiles, by its seed."""
        at = random.Random(seed).random() * (len(self.shares) - 1)
        low, part = int(at), at % 1.0
        high = min(low + 1, len(self.shares) - 1)
        return self.mean_s * (self.shares[low] * (1 - part) + self.shares[high] * part)


@dataclass
class SimulatedReplica(RolloutServiceServicer):
    """Answers as many tokens as a real one would, after as long."""

    name: str
    latencies: Latencies
    address: str = ""
    incarnation: str = field(default_factory=lambda: uuid.uuid4().hex)
    loaded: list[int] = field(default_factory=list[int])
    num_in_flight: int = 0

    async def Generate(self, request: pb.GenerateRequest, context: Any) -> pb.GenerateResponse:  # noqa: N802
        """After the drawn time, candidates that differ in their moves."""
        if request.policy_version not in self.loaded:
            raise VersionNotLoadedError(f"version {request.policy_version} is not loaded")
        took_s = self.latencies.draw(request.sampling.seed)
        self.num_in_flight += request.num_candidates
        try:
            await asyncio.sleep(took_s)
        finally:
            self.num_in_flight -= request.num_candidates
        version = request.policy_version
        return pb.GenerateResponse(
            prompt=_prompt("".join(m.content for m in request.chat.messages)),
            candidates=[
                _candidate(request.sampling.seed + i, request.sampling.max_new_tokens)
                for i in range(request.num_candidates)
            ],
            policy_version=version,
            engine_s=took_s,
        )

    async def GetStatus(self, request: Any, context: Any) -> pb.GetStatusResponse:  # noqa: N802
        """The versions that it holds."""
        status = pb.PolicyStatus(policy=POLICY, loaded_versions=self.loaded)
        return pb.GetStatusResponse(policies=[status], num_in_flight=self.num_in_flight)

    async def ActivateWeights(self, request: Any, context: Any) -> pb.ActivateWeightsResponse:  # noqa: N802
        """Hold a version, and the one before it."""
        self.loaded = [*self.loaded[-1:], request.policy_version]
        return pb.ActivateWeightsResponse(policy_version=request.policy_version)

    def describe(self) -> router.Replica:
        """Its heartbeat."""
        policy = router.ReplicaPolicy(policy=POLICY, loaded_versions=self.loaded)
        if self.loaded:
            policy.active_version = self.loaded[-1]
        return router.Replica(
            replica_id=self.name,
            kind=router.REPLICA_KIND_ROLLOUT,
            address=self.address,
            incarnation=self.incarnation,
            num_in_flight=self.num_in_flight,
            policies=[policy],
            is_serving=True,
        )


@lru_cache(maxsize=1 << 16)
def _prompt(text: str) -> records.Prompt:
    tokens = random.Random(text).choices(range(VOCABULARY), k=PROMPT_TOKENS)
    return records.Prompt(token_ids=tokens, digest=prompt_digest(tokens))


def _candidate(seed: int, num_tokens: int) -> pb.GeneratedCandidate:
    """Of long answers there are fewer that differ: they are made before they are asked for."""
    return _answered(seed % (4096 if num_tokens <= COMPLETION_TOKENS else 256), num_tokens)


@lru_cache(maxsize=4096)
def _answered(seed: int, num_tokens: int) -> pb.GeneratedCandidate:
    """Ids of a whole vocabulary alike, and four characters a token where there are many."""
    rng = random.Random(seed)
    moves = " ".join(rng.choices("UDLR", k=3))
    text = f"simulate {moves} plan {moves}"
    if num_tokens > COMPLETION_TOKENS:
        text = f"{' '.join(rng.choices(FILL.split(), k=num_tokens))[: 4 * num_tokens]} {text}"
    return pb.GeneratedCandidate(
        token_ids=rng.choices(range(VOCABULARY), k=num_tokens),
        logprobs=[-rng.random() for _ in range(num_tokens)],
        text=text,
        finish_reason=records.FINISH_REASON_STOP,
    )


async def simulate(address: str, num_replicas: int, mean_s: float) -> None:
    """Serve until the job is over or this process is ended."""
    latencies = Latencies(mean_s)
    servers: list[grpc.aio.Server] = []
    members: list[Membership] = []
    for number in range(num_replicas):
        replica = SimulatedReplica(f"sim-{number:02d}", latencies)
        server = grpc.aio.server(interceptors=[ErrorInterceptor()], options=SERVER_OPTIONS)
        add_RolloutServiceServicer_to_server(replica, server)
        replica.address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
        await server.start()
        servers.append(server)
        members.append(Membership(RouterClient(address), replica.describe))
    print(json.dumps({"replicas": num_replicas}), flush=True)
    try:
        async with asyncio.TaskGroup() as tasks:
            for member in members:
                tasks.create_task(_live(member))
    except* ShouldExit:
        pass
    await asyncio.gather(*(server.stop(0) for server in servers))


async def _live(member: Membership) -> None:
    await member.join()
    await member.run()


async def record() -> None:
    """Calls of the cpu engine, 32 at once: how long each took, as shares of the mean."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        policy = PolicySpec(model=str(save_random_model(folder / "model")), train=FullSpec())
        engine = CpuEngine()
        await engine.start({POLICY: policy})
        try:
            await engine.stage(TinyTrainer(POLICY, policy, folder / "out").staged(0))
            await engine.activate(POLICY, 0)
            took = await _calls(engine)
        finally:
            await engine.stop()
    mean_s = sum(took) / len(took)
    took.sort()
    quantiles = [took[min(len(took) - 1, i * len(took) // 100)] for i in range(101)]
    document = {
        "from": f"cpu engine, {RECORDED_IN_FLIGHT} calls at once, {RECORDED_CANDIDATES} candidates "
        f"of 4 to 64 tokens, {len(took)} calls; 64-wide random Qwen3",
        "commit": commit(),
        "machine": machine(),
        "load": os.getloadavg()[0],
        "mean_s": round(mean_s, 4),
        "p50_s": round(percentile(took, 0.5), 4),
        "p99_s": round(percentile(took, 0.99), 4),
        "shares": [round(q / mean_s, 4) for q in quantiles],
    }
    LATENCIES.write_text(json.dumps(document) + "\n")
    print(json.dumps({k: v for k, v in document.items() if k != "shares"}))


async def _calls(engine: CpuEngine) -> list[float]:
    gate = asyncio.Semaphore(RECORDED_IN_FLIGHT)
    lengths = random.Random(0)

    async def one(number: int, num_tokens: int) -> float:
        prompt = engine.render(POLICY, observation(number))
        async with gate:
            began = time.perf_counter()
            await engine.generate(
                GenerateRequest(
                    POLICY, 0, prompt, RECORDED_CANDIDATES, sampling(num_tokens), number
                )
            )
            return time.perf_counter() - began

    return list(
        await asyncio.gather(*(one(i, lengths.randint(4, 64)) for i in range(RECORDED_CALLS)))
    )


def main() -> None:
    """Simulate, or record."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["simulate", "record"])
    parser.add_argument("--router", default="")
    parser.add_argument("--replicas", type=int, default=1)
    parser.add_argument("--mean-s", type=float, default=1.0)
    args = parser.parse_args()
    if args.what == "record":
        asyncio.run(record())
    else:
        asyncio.run(simulate(args.router, args.replicas, args.mean_s))


if __name__ == "__main__":
    main()
