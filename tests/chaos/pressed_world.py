"""Cases that are played by other means than one signal: pressure, and second processes."""

import os
import resource
import signal
import subprocess
import time
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import cast

import pressure
import redis
from chaos_cases import DUPLICATED, MEMORY, REFUSING, REORDERED, STORM, SUPERSEDED, Case
from chaos_outcome import Outcome
from chaos_world import REACH_S, ChaosWorld
from follower import Follower
from process_tree import state_of, wait_for

from troupe.runtime.launch.local import LAUNCH_ID
from troupe.runtime.streams import keys


class PressedWorld(ChaosWorld):
    """The platform of the matrix, with what ``pressure`` does to it."""

    _second: "subprocess.Popen[bytes] | None" = None
    free_port: Callable[[], int]

    def _inject(self, case: Case, job_id: str, stander: int) -> tuple[float, int]:
        """Press, let everybody go on; the instant at which the pressure was over."""
        victim = self._pid(case.victim, job_id, case.phase, stander) if case.is_process else stander
        if case.how == SUPERSEDED:
            self._supersede(case, job_id, victim, stander)
        elif case.how in (DUPLICATED, REORDERED):
            with self._redis() as client:
                pressure.shuffle(client, job_id, case.victim, case.how)
        else:
            with self._pressing(case, victim):
                os.kill(stander, signal.SIGCONT)
                time.sleep(pressure.HELD_S)
        hit_at = time.time()
        for pid in (stander, victim):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
        return hit_at, victim

    @contextmanager
    def _pressing(self, case: Case, victim: int) -> Generator[None]:
        with ExitStack() as stack:
            if case.how == REFUSING:
                stack.enter_context(pressure.refusing(stack.enter_context(self._redis())))
            elif case.how == STORM:
                name = "TROUPE_REDIS_PORT" if case.victim == "redis" else "TROUPE_GRPC_PORT"
                port = int(self._platform.environment[name])
                stack.enter_context(pressure.storm(port))
            else:
                what = resource.RLIMIT_AS if case.how == MEMORY else resource.RLIMIT_NOFILE
                stack.enter_context(pressure.squeezed(victim, what))
            yield

    def _supersede(self, case: Case, job_id: str, victim: int, stander: int) -> None:
        """Freeze the process, start a second one beside it, and wait until it has taken over."""
        os.kill(victim, signal.SIGSTOP)
        if victim != stander:
            os.kill(stander, signal.SIGCONT)
        before = self._epoch(job_id, case.victim)
        self._second = self._start_beside(case.victim, victim)
        wait_for(
            f"a second {case.victim} to take over",
            lambda: self._epoch(job_id, case.victim) > before,
            within_s=REACH_S,
        )
        assert state_of(victim) == "T"

    def _start_beside(self, role: str, pid: int) -> "subprocess.Popen[bytes]":
        """A process as ``pid`` is one, but for its ports."""
        raw = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        environment = dict(x.decode().split("=", 1) for x in raw if b"=" in x)
        del environment[LAUNCH_ID]
        if role == "router":
            for name in ("REST", "GRPC", "ADMIN"):
                address = f"127.0.0.1:{self.free_port()}"
                environment[f"TROUPE_ROUTER_{name}_ADDRESS"] = address
        command = Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")[:-1]
        with (self._platform.folder / f"second-{role}.log").open("ab") as log:
            return subprocess.Popen(
                command,
                cwd=Path(f"/proc/{pid}/cwd").resolve(),
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def _epoch(self, job_id: str, role: str) -> int:
        with self._redis() as client:
            return int(cast("bytes | None", client.hget(keys.epochs(job_id), role)) or 0)

    def _redis(self) -> "redis.Redis":
        port = int(self._platform.environment["TROUPE_REDIS_PORT"])
        return redis.Redis(port=port, socket_timeout=10)

    def _serves(self, case: Case, job_id: str, hit_at: float, old: int, follower: Follower) -> bool:
        if case.is_process and case.how != SUPERSEDED:
            return super()._serves(case, job_id, hit_at, old, follower)
        return follower.first_after(hit_at, {"router", "trainer"}) is not None

    def _judge(self, outcome: Outcome, job_id: str, expected: Path, follower: Follower) -> None:
        self._end_second()
        super()._judge(outcome, job_id, expected, follower)

    def _clean_up(self, job_id: str) -> None:
        super()._clean_up(job_id)
        self._end_second()

    def _end_second(self) -> None:
        if self._second is not None:
            self._second.terminate()
            with suppress(subprocess.TimeoutExpired):
                self._second.wait(60)
            self._second.kill()
            self._second.wait(10)
            self._second = None
