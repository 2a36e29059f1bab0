"""Chooses the transport that a setting names: gRPC, a store or torch.distributed.

Owns the choice and each transport's requirements on a job. Never moves a byte.
"""

from troupe.errors import InvalidArgumentError
from troupe.runtime.tls.settings import configured
from troupe.runtime.weights.store import open_store
from troupe.spec.job import JobSpec
from troupe.spec.policy import FullSpec
from troupe.spec.transports import goes_without_file
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
    is_auto, via = settings.weights_via == "auto", settings.weights_via
    if is_auto:
        is_large = goes_without_file(
            spec, is_colocated=settings.colocated, has_tls=configured() is not None
        )
        by_file = "store" if settings.weights_url else "grpc"
        via = "distributed" if is_large else by_file
        files = _by_file(by_file, settings, job_id)
    else:
        files = _by_file(via, settings, job_id)
    if via != "distributed":
        return files
    if not any(isinstance(policy.train, FullSpec) for policy in spec.policies.values()):
        raise InvalidArgumentError(
            "TROUPE_TRAINER_WEIGHTS_VIA=distributed moves full weights, and every policy of this "
            "job trains an adapter: SGLang loads adapters from files only, and they are small. Set "
            "it to grpc or store."
        )
    return BroadcastTransport(
        files,
        host=settings.advertise_host or "127.0.0.1",
        device=settings.device,
        join_timeout_s=settings.weights_join_timeout_s,
        bucket_bytes=settings.weights_bucket_mib << 20,
        is_required=not is_auto,
    )


def _by_file(via: str, settings: TrainerSettings, job_id: str) -> Transport:
    if via == "store":
        return StoredTransport(open_store(settings.weights_url, settings.weights_options), job_id)
    return StreamTransport()
