"""EnvService of one bundle on a socket: the env service's own servicer with other families.

Runs in the bundle's process alone.
"""

import asyncio
from collections.abc import Callable

import grpc.aio

from troupe.api.env.v1.env_pb2_grpc import add_EnvServiceServicer_to_server
from troupe.runtime.serving.interceptor import ErrorInterceptor
from troupe_env.bundles.host import HostOptions
from troupe_env.families import Families
from troupe_env.judging_pool import JudgingPool
from troupe_env.servicer import EnvServicer
from troupe_env.settings import EnvSettings


def serve(options: HostOptions, ready: Callable[[], object]) -> None:
    """Serve until the process is ended; ``ready`` is called once the socket answers."""
    asyncio.run(_serve(options, ready))


async def _serve(options: HostOptions, ready: Callable[[], object]) -> None:
    settings = EnvSettings(
        threads=options.threads,
        max_requests=options.max_requests,
        max_environments=options.max_environments,
        max_actions=options.max_actions,
        call_timeout_s=options.call_timeout_s,
    )
    pool = JudgingPool(settings)
    families = Families(settings.max_environments, bundle=options.digest)
    limit = options.max_message_bytes
    server = grpc.aio.server(
        interceptors=[ErrorInterceptor()],
        options=[
            ("grpc.max_receive_message_length", limit),
            ("grpc.max_send_message_length", limit),
        ],
    )
    add_EnvServiceServicer_to_server(EnvServicer(settings, families, pool), server)
    server.add_insecure_port(f"unix:{options.socket}")
    await server.start()
    ready()
    await pool.watch()
