"""What Prometheus is told of the processes of jobs."""

from prometheus_client.metrics import MetricWrapperBase

from troupe.api.router.v1 import router_pb2
from troupe.runtime.telemetry import metrics
from troupe_router.members.scrape_targets import scrape_targets
from troupe_router.members.store import Member


class Members:
    """One trainer."""

    async def all(self) -> list[Member]:
        replica = router_pb2.Replica(
            replica_id="demo-1-trainer-0",
            kind=router_pb2.REPLICA_KIND_TRAINER,
            admin_address="127.0.0.1:1",
        )
        return [Member(replica, "demo-1")]


async def test_target_when_it_is_labelled_then_no_metric_has_a_label_of_that_name() -> None:
    [target] = await scrape_targets(Members())  # type: ignore[arg-type]
    assert target["targets"] == ["127.0.0.1:1"]
    # Prometheus renames such a label of a series to exported_<label>, where no board looks for it.
    of_targets = {*target["labels"], "job", "instance"}
    declared = [m for m in vars(metrics).values() if isinstance(m, MetricWrapperBase)]
    labels = {label for m in declared for label in m._labelnames}  # pyright: ignore[reportPrivateUsage]
    assert "job_id" in labels and labels & of_targets == set()
