"""A platform on a loopback that loses packets; only in a network namespace of its own.

The kernel drops them, so TCP itself repeats, reorders and backs off. ``own_network.sh`` makes the
namespace, without root; elsewhere nothing here runs, for the rules would hit the whole machine.
"""

import os
import re
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from pathlib import Path

from chaos_cases import Case, Role
from chaos_outcome import Outcome
from chaos_world import ChaosWorld
from follower import Follower
from platform_world import Platform, run_platform

LOST = 0.1
"""Share of the packets to a server, and of those from it, that is lost."""


def why_not_here() -> str:
    """What is missing for packets to be dropped in this network; empty: nothing."""
    if [name for _, name in socket.if_nameindex()] != ["lo"]:
        return "not in a network namespace of its own: `make chaos` makes one"
    if not shutil.which("iptables"):
        return "no iptables: install the package iptables"
    done = subprocess.run(
        ["iptables", "-S", "INPUT"], capture_output=True, text=True, timeout=30, check=False
    )
    return "" if done.returncode == 0 else f"iptables can't be used: {done.stderr.strip()[:200]}"


@contextmanager
def run_with_known_ports(
    folder: Path, free_port: Callable[[], int], more: Mapping[str, str]
) -> Generator[tuple[Platform, dict[Role, int]]]:
    """A platform, and the port of each server."""
    ports = {room: free_port() for room in ("rollout", "env")}
    given = {f"TROUPE_{k.upper()}_GRPC_ADDRESS": f"127.0.0.1:{v}" for k, v in ports.items()}
    with run_platform(folder, free_port, {**given, **more}) as platform:
        for role, name in (("router", "TROUPE_GRPC_PORT"), ("redis", "TROUPE_REDIS_PORT")):
            ports[role] = int(platform.environment[name])
        yield platform, ports


class LossyWorld(ChaosWorld):
    """Runs cases whose victim is a server that packets to and from are lost of."""

    ports: Mapping[Role, int]
    _rules: tuple[tuple[str, ...], ...] = ()

    def _inject(self, case: Case, job_id: str, stander: int) -> tuple[float, int]:
        """Lose packets until the job has ended."""
        chance = ("-m", "statistic", "--mode", "random", "--probability", str(LOST))
        port = str(self.ports[case.victim])
        self._rules = tuple(
            ("INPUT", "-i", "lo", "-p", "tcp", end, port, *chance, "-j", "DROP")
            for end in ("--sport", "--dport")
        )
        for rule in self._rules:
            _iptables("-A", *rule)
        hit_at = time.time()
        os.kill(stander, signal.SIGCONT)
        return hit_at, stander

    def _serves(self, case: Case, job_id: str, hit_at: float, old: int, follower: Follower) -> bool:
        """It never stopped: the job goes on."""
        return follower.first_after(hit_at, {"router", "trainer"}) is not None

    def _judge(self, outcome: Outcome, job_id: str, expected: Path, follower: Follower) -> None:
        outcome.num_packets_lost = num_dropped()
        super()._judge(outcome, job_id, expected, follower)
        if not outcome.num_packets_lost:
            outcome.faults.append("no packet was lost")

    def _clean_up(self, job_id: str) -> None:
        for rule in self._rules:
            _iptables("-D", *rule)
        self._rules = ()
        super()._clean_up(job_id)


def num_dropped() -> int:
    """Packets that the rules have dropped."""
    listed = _iptables("-L", "INPUT", "-v", "-x", "-n")
    return sum(int(found) for found in re.findall(r"^\s*(\d+)\s+\d+\s+DROP\b", listed, re.M))


def _iptables(*arguments: str) -> str:
    done = subprocess.run(
        ["iptables", "-w", "10", *arguments],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == 0, f"iptables {arguments}: {done.stderr}"
    return done.stdout
