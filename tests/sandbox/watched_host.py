"""What attacks aim at: a host with things worth stealing or breaking."""

import os
import socket
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

SECRET = "canary-5519-of-the-service"
EXPECTED = "expected-output-7351-of-the-judge"
TALLY: dict[str, bool] = {}
"""Attack to whether it was contained."""


@dataclass
class WatchedHost:
    """What attacks aim at; ``complaints`` says what has changed."""

    folder: Path
    victim: "subprocess.Popen[bytes]" = field(repr=False)
    servers: dict[str, socket.socket] = field(repr=False)
    mounts: list[str]

    @property
    def names(self) -> dict[str, str]:
        return {
            "PID": str(os.getpid()),
            "PORT": str(self.servers["tcp"].getsockname()[1]),
            "SOCKET": str(self.folder / "socket"),
            "ABSTRACT": f"troupe-test-{os.getpid()}",
            "SECRET_FILE": str(self.folder / "secret"),
            "SECRET": SECRET,
            "TERCES": SECRET[::-1],
            "DETCEPXE": EXPECTED[::-1],
            "PROJECT": str(Path(__file__).parents[2]),
            "PREFIX": sys.base_prefix,
        }

    def complaints(self) -> list[str]:
        found: list[str] = []
        if (self.folder / "secret").read_text() != SECRET:
            found.append("the secret file changed")
        if self.victim.poll() is not None:
            found.append("a process of the host died")
        for name, server in self.servers.items():
            try:
                server.accept()
                found.append(f"someone connected to {name}")
            except BlockingIOError:
                pass
        if (now := mounts(self.folder)) != self.mounts:
            found.append(f"a mount is left: {now}, not {self.mounts}")
        return found


def mounts(folder: Path) -> list[str]:
    """Where file systems are mounted; below a test's folder only this one's."""
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    points = sorted(line.split()[4] for line in lines)
    return [at for at in points if "/pytest-of-" not in at or at.startswith(f"{folder}/")]


def bait(folder: Path) -> dict[str, socket.socket]:
    """A secret in ``folder``, and servers of every kind that a program might reach."""
    (folder / "secret").write_text(SECRET)
    servers = {
        "tcp": socket.create_server(("127.0.0.1", 0)),
        "unix": socket.socket(socket.AF_UNIX),
        "abstract": socket.socket(socket.AF_UNIX),
    }
    servers["unix"].bind(str(folder / "socket"))
    servers["abstract"].bind(f"\0troupe-test-{os.getpid()}")
    for server in servers.values():
        server.listen()
        server.setblocking(False)
    return servers
