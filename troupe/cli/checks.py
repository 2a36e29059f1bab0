"""Checks this machine before the platform starts: runs folder, ports, Redis.

Owns the refusals. Never starts or changes anything.
"""

import contextlib
import socket
import tempfile
from collections.abc import Generator
from pathlib import Path

from troupe.cli.settings import HOST, SERVE_PORT, CliSettings
from troupe.durable import make_folder
from troupe.errors import InvalidArgumentError
from troupe.runtime.streams.redis import connect

_PLACES = 100


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
    ports = settings.needed_ports()
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
                    f"it; `troupe down` ends a platform), or choose another with {how}, four "
                    "others with --port-base, or free ones with --ports auto."
                ) from error


@contextlib.contextmanager
def free_ports(settings: CliSettings) -> Generator[CliSettings]:
    """``settings`` with the first ports that are free: its own, or four in a row above them.

    Until the block ends, no other platform that begins on this machine is given them. A place with
    the port that `troupe serve` takes is left to it, free or not.

    Raises:
        InvalidArgumentError: no four of the next 100 places are free.
    """
    with contextlib.ExitStack() as held:
        yield _reserved(settings, held)


def _reserved(settings: CliSettings, held: contextlib.ExitStack) -> CliSettings:
    bases = range(settings.rest_port + 10, 65532, 10)[:_PLACES]
    for base in (None, *bases):
        tried = settings if base is None else _from(settings, base)
        if base is not None and SERVE_PORT in tried.needed_ports().values():
            continue
        # First the reservation: who held it before may have taken the ports meanwhile.
        if not _reserve(tried.rest_port, held):
            continue
        try:
            check_ports(tried)
        except InvalidArgumentError:
            continue
        return tried
    raise InvalidArgumentError(
        f"No four ports in a row above {settings.rest_port} are free; give a free place with "
        "--port-base."
    )


def _reserve(port: int, held: contextlib.ExitStack) -> bool:
    """Whether nobody else holds ``port``; a name without a file, which ends with its process."""
    place = held.enter_context(socket.socket(socket.AF_UNIX))
    try:
        place.bind(f"\0troupe-ports-{port}")
    except OSError:
        return False
    return True


def _from(settings: CliSettings, base: int) -> CliSettings:
    ports = {"rest_port": base, "grpc_port": base + 1, "admin_port": base + 2}
    return settings.model_copy(update={**ports, "redis_port": base + 3})


async def check_redis(url: str) -> None:
    """Raise UnavailableError unless a Redis answers at ``url``."""
    client = await connect(url, connect_for_s=3.0)
    await client.aclose()
