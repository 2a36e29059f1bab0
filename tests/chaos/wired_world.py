"""A platform whose rooms talk through a proxy, so that the network between any two can be hit.

Each server binds 127.0.0.1 and is known to the others at 127.0.0.2, where the proxy listens.
"""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, cast

import redis
from chaos_cases import HALF_OPEN, PARTITION, RESETS, SLOW, Case, Role
from chaos_world import FROZEN_S, ChaosWorld
from follower import Follower
from platform_world import Platform, run_platform
from process_tree import wait_for
from wire import Link, Trouble, Wire

from troupe.runtime.streams import embedded

NEAR, FAR = "127.0.0.2", "127.0.0.1"
HELD_S: Final[Mapping[str, float]] = {PARTITION: FROZEN_S, RESETS: 4.0, SLOW: 6.0}
"""For so long a trouble lasts; the others last until the job ends."""


@dataclass
class Valkey:
    """A server of the tests' own, durable as the platform's."""

    port: int
    folder: Path
    more: tuple[str, ...] = ()
    process: "subprocess.Popen[bytes] | None" = field(default=None, repr=False)

    def start(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / "valkey.log").open("ab") as log:
            argv = [*embedded.server_argv(self.port, self.folder), *self.more]
            self.process = subprocess.Popen(argv, stdout=log, stderr=log)
        wait_for("Valkey to answer", self.answers, within_s=60)

    def stop(self, how: signal.Signals = signal.SIGKILL) -> None:
        if self.process is not None:
            self.process.send_signal(how)
            self.process.wait(timeout=30)
            self.process = None

    def ask(self, *command: str) -> object:
        """One command on a connection of its own, past the proxy."""
        with redis.Redis(port=self.port, socket_timeout=10) as client:
            return cast("object", client.execute_command(*command))

    def answers(self) -> bool:
        try:
            return self.ask("PING") is True
        except redis.RedisError:
            return False


@contextmanager
def run_wired(
    folder: Path, free_port: Callable[[], int], valkey: Valkey, more: Mapping[str, str]
) -> Generator[tuple[Platform, Wire]]:
    """A platform on ``valkey`` with proxies before router, Valkey, rollout and env."""
    ports = {name: free_port() for name in ("router", "rollout", "env")}
    environment = {
        "TROUPE_REDIS_URL": f"redis://{NEAR}:{valkey.port}/0",
        "TROUPE_GRPC_PORT": str(ports["router"]),
        "TROUPE_ROUTER_ADVERTISE_HOST": NEAR,
    }
    for room in ("rollout", "env"):
        environment[f"TROUPE_{room.upper()}_GRPC_ADDRESS"] = f"{FAR}:{ports[room]}"
        environment[f"TROUPE_{room.upper()}_ADVERTISE_HOST"] = NEAR
    with Wire() as wire:
        for name, port in (*ports.items(), ("redis", valkey.port)):
            wire.listen(name, (NEAR, port), (FAR, port))
        with run_platform(folder, free_port, {**environment, **more}) as platform:
            yield platform, wire
            wire.heal()


class WiredWorld(ChaosWorld):
    """Runs cases whose victim is a link, such as ``router:redis``."""

    kept: tuple[Role, ...] = ("router",)

    def __init__(
        self,
        platform: Platform,
        faults: Path,
        results: Path | None,
        elders: frozenset[int],
        wire: Wire,
    ) -> None:
        super().__init__(platform, faults, results, elders)
        self._wire = wire

    def _inject(self, case: Case, job_id: str, stander: int) -> tuple[float, int]:
        """Trouble on the link, then everybody goes on; the instant at which it is healed."""
        link = link_of(case)
        assert self._wire.has_carried(link, 0.0), f"{case.victim} does not go through the proxy"
        if case.how == HALF_OPEN:
            assert self._wire.forget(link), f"nobody is connected on {case.victim}"
        else:
            self._wire.set(link, cast("Trouble", case.how))
        hit_at = time.time()
        os.kill(stander, signal.SIGCONT)
        if case.how in HELD_S:
            time.sleep(HELD_S[case.how])
            hit_at = time.time()
            self._wire.set(link, "")
        return hit_at, stander

    def _serves(self, case: Case, job_id: str, hit_at: float, old: int, follower: Follower) -> bool:
        """Questions and answers go over the link again."""
        return self._wire.has_carried(link_of(case), hit_at)

    def _clean_up(self, job_id: str) -> None:
        self._wire.heal()
        super()._clean_up(job_id)


def link_of(case: Case) -> Link:
    """Who dials, and whom."""
    client, _, server = case.victim.partition(":")
    return client, server
