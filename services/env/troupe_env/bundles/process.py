"""One bundle's process as its env service sees it: unpacked, started, called, ended.

Owns the folder, the child and the connection. The child's environment holds nothing of this one's.
"""

import asyncio
import contextlib
import importlib.util
import os
import secrets
import shutil
import signal
import sys
import sysconfig
from collections import deque
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import grpc.aio

from troupe.api.env.v1.env_pb2_grpc import EnvServiceStub
from troupe.bundles.archive import Bundle, unpack
from troupe.clients.channel import MAX_MESSAGE_BYTES, from_rpc_error
from troupe.errors import DeadlineError, InvalidArgumentError, UnavailableError
from troupe.runtime.telemetry.logging import get_logger
from troupe_env.bundles.host import READY, UNCONFINED, HostOptions
from troupe_env.bundles.packages import install
from troupe_env.settings import EnvSettings

_log = get_logger(__name__)
_T = TypeVar("_T")
_PACKAGES = ("troupe", "troupe_env", "troupe_tasks")
_ENVIRONMENT = {
    "PATH": "/usr/bin:/bin",
    "LANG": "C.UTF-8",
    "OMP_NUM_THREADS": "1",
    "PYTHONDONTWRITEBYTECODE": "1",
    "PYTHONUNBUFFERED": "1",
}
"""All that a bundle's process finds in its environment."""
_END_S = 0.5
_LIBRARIES = ("lib", "lib64", "pyvenv.cfg")
_LINES, _LINE_BYTES = 200, 500
"""Of a process's output, what goes to the log."""


class BundleProcess:
    """A running process; ``start`` makes one."""

    def __init__(self, digest: str, folder: Path, child: asyncio.subprocess.Process) -> None:
        self.digest = digest
        self.num_calls = 0
        self.folder = folder
        self._child = child
        self._last = deque[str](maxlen=10)
        self._reading = asyncio.create_task(self._read_output())
        limit = MAX_MESSAGE_BYTES
        self._channel = grpc.aio.insecure_channel(
            f"unix:{folder / 's' / 'socket'}",
            options=[
                ("grpc.max_receive_message_length", limit),
                ("grpc.max_send_message_length", limit),
                ("grpc.use_local_subchannel_pool", 1),
                ("grpc.enable_http_proxy", 0),
            ],
        )
        self.stub = EnvServiceStub(self._channel)

    @classmethod
    async def start(
        cls, bundle: Bundle, settings: EnvSettings, *, root: Path, index: str
    ) -> "BundleProcess":
        """Unpack ``bundle`` to a new folder in ``root`` and start its process.

        Raises:
            InvalidArgumentError: its packages can't be had, or this machine can't confine it.
            DeadlineError: it was not ready in time.
        """
        folder = root / secrets.token_hex(8)
        try:
            await asyncio.to_thread(_prepare, bundle, folder)
            python_path = [str(folder / "bundle")]
            if bundle.has_requirements:
                python_path.append(await install(bundle, folder / "packages", index=index))
            child = await asyncio.create_subprocess_exec(
                *(sys.executable, "-P", "-B", "-m", "troupe_env.bundles.host"),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                cwd="/",
                env=_ENVIRONMENT,
                start_new_session=True,
            )
        except BaseException:
            await asyncio.to_thread(_remove, folder)
            raise
        process = cls(bundle.digest, folder, child)
        try:
            await process._become_ready(_options(bundle.digest, folder, python_path, settings))
        except BaseException:
            await process.close()
            raise
        _log.info("bundle.started", digest=bundle.digest, pid=child.pid)
        return process

    @property
    def is_alive(self) -> bool:
        """Whether it has not ended."""
        return self._child.returncode is None

    async def call(
        self, what: str, ask: Callable[[EnvServiceStub, float], Awaitable[_T]], timeout_s: float
    ) -> _T:
        """The answer of ``ask``; the process's errors are raised here as they were there."""
        self.num_calls += 1
        try:
            return await ask(self.stub, timeout_s)
        except grpc.aio.AioRpcError as error:
            if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
                raise DeadlineError(
                    f"{what}: the bundle's code did not answer in {timeout_s:.1f} s; its process "
                    "is ended and started again. Does its code end? If it needs more time, raise "
                    "the job's limits.env_timeout_s."
                ) from error
            raise from_rpc_error(error, what=what, address=self.digest[:19]) from error
        except (asyncio.CancelledError, grpc.aio.UsageError) as error:
            task = asyncio.current_task()
            if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
                raise
            raise UnavailableError(f"{what}: the bundle's process was ended; try again") from error
        finally:
            self.num_calls -= 1

    async def has_ended(self) -> bool:
        """Whether it ended; its connection is known to be lost before its end is."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_END_S):
                await self._child.wait()
        return not self.is_alive

    async def last_words(self) -> str:
        """How it ended, and the last lines that it printed."""
        status = await self._child.wait()
        lines = " | ".join(self._last)
        return f"exit status {status}" + (f"; its last lines: {lines}" if lines else "")

    async def close(self) -> None:
        """End it with all that it started, and remove its files."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._child.pid, signal.SIGKILL)
        await self._child.wait()
        await self._channel.close(None)
        self._reading.cancel()
        await asyncio.gather(self._reading, return_exceptions=True)
        await asyncio.to_thread(_remove, self.folder)

    async def _become_ready(self, options: HostOptions) -> None:
        child, limit_s = self._child, options.call_timeout_s
        assert child.stdin is not None and child.stdout is not None
        try:
            async with asyncio.timeout(limit_s):
                child.stdin.write(options.model_dump_json().encode() + b"\n")
                await child.stdin.drain()
                answer = await child.stdout.readline()
        except TimeoutError as error:
            raise DeadlineError(f"a bundle's process was not ready in {limit_s:g} s") from error
        except (ConnectionError, ValueError):
            answer = b""
        if answer == READY:
            return
        words = await self.last_words()
        if child.returncode == UNCONFINED:
            raise InvalidArgumentError(
                f"this env service can't confine a bundle's process ({words}), so it runs none; run"
                " it on a kernel with Landlock, or have the operator set "
                "TROUPE_ENV_BUNDLE_CONFINEMENT=preferred where every user is trusted"
            )
        raise UnavailableError(f"a bundle's process did not start ({words})")

    async def _read_output(self) -> None:
        """Log what the bundle's code prints, as far as the bounds go; read the rest away."""
        assert self._child.stderr is not None
        number = 0
        while chunk := await self._child.stderr.read(1 << 16):
            for line in chunk.decode("utf-8", "replace").splitlines():
                self._last.append(line[:_LINE_BYTES])
                number += 1
                if number <= _LINES:
                    _log.info("bundle.output", digest=self.digest, line=line[:_LINE_BYTES])


def _options(
    digest: str, folder: Path, python_path: list[str], settings: EnvSettings
) -> HostOptions:
    return HostOptions(
        digest=digest,
        folder=str(folder / "bundle"),
        python_path=python_path,
        socket=str(folder / "s" / "socket"),
        readable=[*python_path, *_installed()],
        memory_bytes=settings.bundle_memory_bytes,
        must_confine=settings.bundle_confinement == "required",
        threads=settings.threads,
        max_requests=settings.max_requests,
        max_environments=settings.max_environments,
        max_actions=settings.max_actions,
        max_message_bytes=MAX_MESSAGE_BYTES,
        call_timeout_s=settings.call_timeout_s,
        parent=os.getpid(),
    )


def _installed() -> list[str]:
    """Folders of Python, of its packages, and of Troupe's where they are not among these."""
    paths: dict[str, Any] = sysconfig.get_paths()
    folders = {paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    # The virtual environment's own packages, and those of the Python that it is made of.
    prefixes = {sys.prefix, sys.base_prefix}
    folders |= {f"{prefix}/{name}" for prefix in prefixes for name in _LIBRARIES}
    for name in _PACKAGES:
        spec = importlib.util.find_spec(name)
        folders |= {*(spec.submodule_search_locations or ())} if spec else set[str]()
    return sorted(folders)


def _prepare(bundle: Bundle, folder: Path) -> None:
    folder.mkdir(mode=0o700)
    (folder / "s").mkdir(mode=0o700)
    unpack(bundle, folder / "bundle")


def _remove(folder: Path) -> None:
    for inner in (folder, *folder.rglob("*/")):
        if not inner.is_symlink() and inner.is_dir():
            inner.chmod(0o700)
    shutil.rmtree(folder, ignore_errors=True)
