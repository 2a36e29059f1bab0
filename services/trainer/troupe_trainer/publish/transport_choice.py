"""Chooses the transport that a setting names: gRPC, a store or torch.distributed.

Owns the choice and each transport's requirements on a job. Never moves a byte.
"""

from troupe.errors import InvalidArgumentError
from troupe.runtime.weights.store import open_store
from troupe.spec.job import JobSpec
from troupe.spec.policy import FullSpec
from troupe_trainer.publish.broadcast import BroadcastTransport
from troupe_trainer.publish.stored import StoredTransport
from troupe_trainer.publish.stream import StreamTransport
from troupe_trainer.publish.transport import Transport
from troupe_trainer.settings import TrainerSettings


def make_transport(settings: TrainerSettings, job_id: str, spec: JobSpec) -> Transport:
    """The transport that ``TROUPE_TRAINER_WEIGHTS_VIA`` names.

    Raises:
        InvalidArgumentError: the setting does not fit the job or other settings.
    """
    stream = StreamTransport()
    if settings.weights_via == "grpc":
        return stream
    if settings.weights_via == "store":
        return StoredTransport(open_store(settings.weights_url, settings.weights_options), job_id)
    if not any(isinstance(policy.train, FullSpec) for policy in spec.policies.values()):
        raise InvalidArgumentError(
            "TROUPE_TRAINER_WEIGHTS_VIA=distributed moves full weights, and every policy of this "
            "job trains an adapter: SGLang loads adapters from files only, and they are small. Set "
            "it to grpc or store."
        )
    return BroadcastTransport(
        stream,
        host=settings.advertise_host or "127.0.0.1",
        device=settings.device,
        join_timeout_s=settings.weights_join_timeout_s,
        bucket_bytes=settings.weights_bucket_mib << 20,
    )
