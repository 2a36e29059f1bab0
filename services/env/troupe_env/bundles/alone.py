"""``python -m troupe_env.bundles.alone BUNDLE SOCKET LOG_LEVEL``: EnvService of one bundle.

`troupe serve` starts it to play a run whose task came in a bundle: under the same rules as in an
env service, which needs a router. Says ``ready`` on stdout and ends when stdin does.
"""

import asyncio
import sys
from pathlib import Path

import grpc.aio

from troupe.api.env.v1.env_pb2_grpc import EnvServiceServicer, add_EnvServiceServicer_to_server
from troupe.bundles.archive import Bundle, read_bundle
from troupe.clients.channel import SERVER_OPTIONS
from troupe.errors import NotFoundError
from troupe.runtime.serving.interceptor import ErrorInterceptor
from troupe.runtime.telemetry.logging import configure_logging
from troupe_env.bundles.forwarding import ForwardingServicer
from troupe_env.bundles.processes import BundleProcesses
from troupe_env.settings import EnvSettings


async def serve(archive: bytes, socket: str) -> None:
    """Serve until stdin ends."""
    bundle = read_bundle(archive, max_bytes=len(archive))  # the platform that trained had a limit

    async def fetch(digest: str) -> Bundle:
        if digest != bundle.digest:
            raise NotFoundError(f"this process has the bundle {bundle.digest}, not {digest}")
        return bundle

    settings = EnvSettings()
    processes = BundleProcesses(settings, fetch)
    server = grpc.aio.server(interceptors=[ErrorInterceptor()], options=SERVER_OPTIONS)
    servicer = ForwardingServicer(settings, EnvServiceServicer(), processes)
    add_EnvServiceServicer_to_server(servicer, server)
    server.add_insecure_port(f"unix:{socket}")
    try:
        await server.start()
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        await asyncio.to_thread(sys.stdin.read)
    finally:
        await server.stop(None)
        await processes.close()


if __name__ == "__main__":
    # Logs go to stderr: nobody reads stdout after its one line.
    configure_logging("serve-bundle", level=sys.argv[3])
    asyncio.run(serve(Path(sys.argv[1]).read_bytes(), sys.argv[2]))
