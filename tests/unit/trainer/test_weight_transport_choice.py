"""Which transport a setting names, and what a push tells the job's events and the metrics."""

import math
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from prometheus_client import REGISTRY

from troupe.api.records.v1.records_pb2 import WeightsManifest
from troupe.clients.rollout import RolloutStatus
from troupe.errors import InvalidArgumentError, UnavailableError, WeightsRejectedError
from troupe.runtime.streams.events import EventLog
from troupe.spec.job import JobSpec
from troupe.spec.transports import transport_words
from troupe_trainer.checkpoint.canary import Canary
from troupe_trainer.checkpoint.export import Export
from troupe_trainer.publish.broadcast import BroadcastTransport
from troupe_trainer.publish.push_events import PushEvents, PushResult, push_refusal
from troupe_trainer.publish.stream import StreamTransport
from troupe_trainer.publish.transport import Target
from troupe_trainer.publish.transport_choice import make_transport
from troupe_trainer.settings import TrainerSettings


def spec(*kinds: str) -> JobSpec:
    policies = {f"p{i}": {"model": "m", "train": {"kind": kind}} for i, kind in enumerate(kinds)}
    return JobSpec.model_validate(
        {
            "name": "t",
            "steps": 1,
            "task": {"name": "plan_path"},
            "workflow": {"order": [f"a{i}" for i in range(len(kinds))]},
            "agents": {f"a{i}": {"policy": f"p{i}"} for i in range(len(kinds))},
            "policies": policies,
        }
    )


def settings(**values: Any) -> TrainerSettings:
    return TrainerSettings(device="cpu", **values)


def test_transport_is_the_one_that_the_setting_names(tmp_path: Path):
    assert make_transport(settings(), "job", spec("lora")).name == "grpc"
    store = settings(weights_via="store", weights_url=str(tmp_path))
    assert make_transport(store, "job", spec("lora")).name == "store"
    broadcast = settings(weights_via="distributed")
    assert make_transport(broadcast, "job", spec("lora", "full")).name == "distributed"


def test_transport_when_nothing_is_named_then_large_full_weights_go_without_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def chosen(model: str, *kinds: str, **values: Any) -> tuple[str, bool]:
        job = spec(*kinds)
        policies = {n: p.model_copy(update={"model": model}) for n, p in job.policies.items()}
        job = job.model_copy(update={"policies": policies})
        transport = make_transport(settings(**values), "job", job)
        return transport.name, transport.takes_live

    large, url = "Qwen/Qwen3-8B", str(tmp_path)
    assert chosen(large, "full") == ("distributed", True)
    assert chosen(large, "lora", "full", weights_url=url) == ("distributed", True)
    assert chosen(large, "lora", weights_url=url) == ("store", False)
    assert chosen("nobody/knows", "full") == ("grpc", False)
    assert chosen(large, "full", weights_via="grpc") == ("grpc", False)
    assert chosen(large, "full", colocated=True, weights_url=url) == ("store", False)
    monkeypatch.setattr("troupe_trainer.publish.transport_choice.configured", lambda: "files")
    assert chosen(large, "full") == ("grpc", False)  # a broadcast is not encrypted


def test_words_when_planned_then_say_what_goes_by_file():
    job = spec("lora", "full")
    update = {"model": "Qwen/Qwen3-8B"}
    policies = {n: p.model_copy(update=update) for n, p in job.policies.items()}
    job = job.model_copy(update={"policies": policies})
    words = transport_words(job)
    assert "p0: an adapter's file; p1 (32.8 GB): from the learner's tensors, no file" in words
    assert "p1 (32.8 GB): a file" in transport_words(job, is_colocated=True)


class Engine:
    """A replica's status: whether it joins groups, and with which NCCL."""

    def __init__(self, ranks: int, nccl: str = "", backend: str = "gloo") -> None:
        self._status = RolloutStatus(
            [], 0, "m", "e", weight_ranks=ranks, weight_backend=backend, weight_nccl=nccl
        )

    async def status(self) -> RolloutStatus:
        return self._status


@pytest.mark.parametrize(("ranks", "takes_live"), [((1, 2), True), ((1, 0), False)])
async def test_broadcast_by_default_when_an_engine_joins_no_group_then_all_goes_by_file(
    ranks: tuple[int, ...], takes_live: bool
):
    targets = [Target(f"r{i}", cast("Any", Engine(count))) for i, count in enumerate(ranks)]
    chosen = BroadcastTransport(StreamTransport(), host="127.0.0.1", is_required=False)
    await chosen.begin(targets)
    assert chosen.takes_live == takes_live
    assert chosen.name == ("distributed" if takes_live else "grpc")
    named = BroadcastTransport(StreamTransport(), host="127.0.0.1")
    await named.begin(targets)
    assert named.takes_live  # who asked for it is told, when it is sent


@pytest.mark.parametrize(
    ("theirs", "takes_live"), [("2.29.7", True), ("2.30.7", False), ("", False)]
)
async def test_broadcast_when_a_replica_has_another_nccl_then_goes_by_file_or_says_both(
    monkeypatch: pytest.MonkeyPatch, theirs: str, takes_live: bool
):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.nccl.version", lambda: (2, 29, 7))
    targets = [Target("r0", cast("Any", Engine(1, theirs, "nccl")))]
    chosen = BroadcastTransport(StreamTransport(), host="127.0.0.1", is_required=False)
    await chosen.begin(targets)
    assert chosen.takes_live == takes_live
    assert chosen.name == ("distributed" if takes_live else "grpc")
    named = BroadcastTransport(StreamTransport(), host="127.0.0.1")
    statuses = [await targets[0].client.status()]
    if takes_live or not theirs:  # unknown: whoever names the way is believed
        assert named._backend(targets, statuses) == "nccl"
        return
    words = rf"r0 has NCCL {theirs} and the trainer has NCCL 2\.29\.7"
    with pytest.raises(InvalidArgumentError, match=words):
        named._backend(targets, statuses)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"weights_via": "distributed"}, "every policy of this job trains an adapter"),
        ({"weights_via": "store"}, "No weight store is set"),
    ],
)
def test_transport_that_cannot_serve_the_job_is_refused(values: dict[str, Any], words: str):
    with pytest.raises(InvalidArgumentError, match=words):
        make_transport(settings(**values), "job", spec("lora"))


class Events:
    """The job's event log, in memory; it may be out of reach."""

    def __init__(self, *, is_down: bool = False) -> None:
        self.said: list[tuple[str, dict[str, Any]]] = []
        self._is_down = is_down

    async def emit(self, type: str, data: dict[str, Any]) -> None:
        if self._is_down:
            raise UnavailableError("no Redis")
        self.said.append((type, data))


EXPORT = Export(
    WeightsManifest(policy="p", policy_version=7, kind="lora", size_bytes=10, tensor_digest="ab"),
    Path("w"),
    Canary([]),
    [],
    export_s=0.5,
)


def value(name: str, **labels: str) -> float | None:
    return REGISTRY.get_sample_value(name, labels)


async def test_push_is_told_with_the_phases_of_each_replica():
    events = Events()
    told = PushEvents("job-told", cast("EventLog", events), ["p"])
    results = [PushResult("r0", "ab", 1.0, 2.0, 3.0, 4.0, 1e-6), PushResult("r1", "ab", 1.5)]
    await told.published(EXPORT, "grpc", results)
    ((type, data),) = events.said
    assert type == "weights.published"
    assert (data["policy_version"], data["via"], data["export_s"]) == (7, "grpc", 0.5)
    assert [replica["replica"] for replica in data["replicas"]] == ["r0", "r1"]
    assert data["replicas"][0]["canary_s"] == 3.0
    labels = {"job_id": "job-told", "policy": "p"}
    name = "troupe_weights_phase_seconds"
    phases = ("export", "transfer", "stage", "canary", "activate")
    found = [value(name, **labels, replica="r0", phase=phase) for phase in phases]
    assert found == [0.5, 1.0, 2.0, 3.0, 4.0]
    assert value("troupe_weights_canary_error_nats", **labels, replica="r0") == 1e-6
    name = "troupe_weights_pushes_total"
    assert value(name, **labels, outcome="published") == 1
    # An alert on the increase of refusals sees the first one only if there was a zero before.
    assert value(name, **labels, outcome="refused") == 0


async def test_refusal_names_replica_policy_and_tensor():
    events = Events()
    error = WeightsRejectedError("wrong", pointer="/tensors/model.norm.weight")
    await PushEvents("job-refused", cast("EventLog", events), ["p"]).refused(
        EXPORT, "store", push_refusal(PushResult("r1"), error)
    )
    ((type, data),) = events.said
    assert type == "weights.refused"
    found = (data["replica"], data["policy"], data["tensor"], data["reason"])
    assert found == ("r1", "p", "model.norm.weight", "wrong")
    assert data["canary_error"] is None and data["cause"] == "other"
    labels = {"job_id": "job-refused", "policy": "p", "outcome": "refused"}
    assert value("troupe_weights_pushes_total", **labels) == 1


@pytest.mark.parametrize(("error", "told"), [(0.25, 0.25), (math.inf, None)])
async def test_refusal_by_the_canary_tells_how_far_off_it_was(error: float, told: float | None):
    events = Events()
    job_id = f"job-canary-{error:g}"
    result = PushResult("r1", canary_s=0.1, canary_error=error, canary_limit=0.1)
    refusal = push_refusal(result, WeightsRejectedError("it differs"))
    await PushEvents(job_id, cast("EventLog", events), ["p"]).refused(EXPORT, "grpc", refusal)
    data = events.said[0][1]
    assert (data["canary_error"], data["cause"]) == (told, "canary")
    labels = {"job_id": job_id, "policy": "p", "replica": "r1"}
    assert value("troupe_weights_canary_error_nats", **labels) == error


def test_refusal_when_the_canary_was_right_then_has_another_cause() -> None:
    result = PushResult("r1", canary_s=0.1, canary_error=0.2, canary_limit=0.25)
    assert push_refusal(result, WeightsRejectedError("no room to activate")).cause == "other"


async def test_event_log_that_is_down_fails_no_push():
    events = cast("EventLog", Events(is_down=True))
    await PushEvents("job-down", events, ["p"]).published(EXPORT, "grpc", [PushResult("r0")])
    labels = {"job_id": "job-down", "policy": "p", "outcome": "published"}
    assert value("troupe_weights_pushes_total", **labels) == 1
