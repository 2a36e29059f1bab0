"""Connects to the cluster that the router runs in, or to that of a kubeconfig file."""

from pathlib import Path

from kubernetes.aio import client, config
from kubernetes.aio.config.config_exception import ConfigException

from troupe.errors import InvalidArgumentError
from troupe_router.cluster.api import ClusterApi

_OWN_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


async def connect(*, kubeconfig: str, namespace: str) -> ClusterApi:
    """A connection; raises InvalidArgumentError when no cluster is configured."""
    configuration = client.Configuration()
    try:
        if kubeconfig:
            await config.load_kube_config(
                config_file=kubeconfig, client_configuration=configuration, persist_config=False
            )
        else:
            config.load_incluster_config(configuration)
    except (ConfigException, OSError) as error:
        raise InvalidArgumentError(
            f"launcher 'kubernetes' finds no cluster ({error}); run the router in a pod with a "
            "service account's token, or set TROUPE_ROUTER_KUBECONFIG to a kubeconfig file"
        ) from error
    return ClusterApi(configuration, namespace or _own_namespace())


def _own_namespace() -> str:
    try:
        return _OWN_NAMESPACE.read_text("utf-8").strip()
    except OSError as error:
        raise InvalidArgumentError(
            f"launcher 'kubernetes' does not know its namespace ({error}); "
            "set TROUPE_ROUTER_NAMESPACE"
        ) from error
