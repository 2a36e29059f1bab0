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
    via = settings.weights_via
    files: Transport = StreamTransport()
    if via == "store" or (via == "auto" and settings.weights_url):
        files = StoredTransport(open_store(settings.weights_url, settings.weights_options), job_id)
    has_tls = configured() is not None
    if via == "auto" and goes_without_file(spec, is_colocated=settings.colocated, has_tls=has_tls):
        via = "distributed"
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
        is_required=settings.weights_via == "distributed",
    )
