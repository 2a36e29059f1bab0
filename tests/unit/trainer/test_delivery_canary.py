"""What a replica's answer to the canary must be before a version is activated."""

import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest

from troupe.api.records.v1.records_pb2 import WeightsManifest
from troupe.api.router.v1.router_pb2 import Replica
from troupe.clients.rollout import RolloutClient, WeightsReceipt
from troupe.errors import WeightsRejectedError
from troupe.spec import parse_spec
from troupe_trainer.checkpoint.canary import Canary
from troupe_trainer.checkpoint.export import Export
from troupe_trainer.publish.delivery import Delivery
from troupe_trainer.publish.push import Push
from troupe_trainer.publish.transport import Transport

RIGHT = [-1.0, 0.0, -2.0]
REPLICA = Replica(replica_id="r0", incarnation="a", address="r0:1")
SPEC = {
    "name": "t",
    "steps": 1,
    "task": {"name": "plan_path"},
    "workflow": {"order": ["tool", "planner"]},
    "agents": {"tool": {"policy": "p"}, "planner": {"policy": "p"}},
    "policies": {"p": {"model": "m"}},
}


class Arrived:
    """A transport whose bytes all arrive."""

    name = "fake"

    @asynccontextmanager
    async def session(self, *_: Any, **__: Any) -> AsyncIterator[Any]:
        async def send(_: Any) -> WeightsReceipt:
            return WeightsReceipt("ab", 0.0, 0.0)

        yield send


class Scores:
    """A replica's client that answers the canary with ``logprobs``."""

    def __init__(self, logprobs: list[float]) -> None:
        self._logprobs = logprobs

    async def score(self, *_: Any, **__: Any) -> list[float]:
        return self._logprobs


@pytest.mark.parametrize(
    ("sent", "error"),
    [
        (RIGHT, 0.0),
        ([-1.0, math.nan, -2.0], math.inf),
        ([-1.0, 0.0, math.nan], math.inf),
        ([-1.0, 0.0, -math.inf], math.inf),
        ([-1.0, 0.0], 0.0),
        ([], math.inf),
    ],
)
async def test_stage_when_the_canary_is_no_number_or_short_then_refused(
    sent: list[float], error: float
) -> None:
    manifest = WeightsManifest(policy="p", policy_version=1, tensor_digest="ab")
    push = Push(Export(manifest, Path("w"), Canary([1, 2, 3, 4]), RIGHT))
    client = cast("RolloutClient", Scores(sent))
    delivery = Delivery(parse_spec(SPEC), cast("Transport", Arrived()), lambda _: client)

    (refusal,) = await delivery.stage([REPLICA], push)

    assert isinstance(refusal, WeightsRejectedError) == (sent != RIGHT)
    assert push.result(REPLICA).canary_error == error
