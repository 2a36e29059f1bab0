"""Checks this machine before the platform starts: runs folder, ports, Redis.

Owns the refusals. Never starts or changes anything.
"""

import socket
import tempfile
from pathlib import Path

from troupe.cli.settings import HOST, CliSettings
from troupe.durable import make_folder
from troupe.errors import InvalidArgumentError
from troupe.runtime.streams.redis import connect


def check_folder(runs_dir: Path) -> None:
    """Raise InvalidArgumentError unless files can be made in ``runs_dir``."""
    try:
        make_folder(runs_dir)
        with tempfile.NamedTemporaryFile(dir=runs_dir, prefix=".writable-"):
            pass
    except OSError as error:
        raise InvalidArgumentError(
            f"The runs folder {runs_dir.absolute()} can't be written ({error.strerror}); choose "
            "another with --runs-dir or TROUPE_RUNS_DIR."
        ) from error


def check_ports(settings: CliSettings) -> None:
    """Raise InvalidArgumentError when a port that the platform needs is taken or named twice."""
    ports = settings.ports()
    for name, port in ports.items():
        how = f"--{name}-port or TROUPE_{name.upper()}_PORT"
        twin = next((other for other, p in ports.items() if p == port and other != name), None)
        if twin is not None:
            raise InvalidArgumentError(
                f"Port {port} is given to both '{name}' and '{twin}'; choose another with {how}."
            )
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((HOST, port))
            except OSError as error:
                raise InvalidArgumentError(
                    f"Port {port} on {HOST}, which the platform needs ({name}), can't be taken: "
                    f"{error.strerror}. Stop what listens there (`ss -ltnp 'sport = {port}'` names "
                    f"it; `troupe down` ends a platform), or choose another with {how}."
                ) from error


async def check_redis(url: str) -> None:
    """Raise UnavailableError unless a Redis answers at ``url``."""
    client = await connect(url, connect_for_s=3.0)
    await client.aclose()
