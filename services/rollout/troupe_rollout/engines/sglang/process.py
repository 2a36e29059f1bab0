"""One child process with its own log: started, watched, and ended with its descendants.

Owns the process group and the log file. Knows nothing of SGLang's API.
"""

import asyncio
import contextlib
import os
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

from troupe.errors import InvalidArgumentError, UnavailableError
from troupe.runtime.launch.processes import is_group_alive

TERM_TIMEOUT_S = 1.0
"""Nothing is in flight when a server is stopped, so there is little to be polite about."""
KILL_TIMEOUT_S = 10.0
KILL_POLL_S = 0.02
TAIL_BYTES = 4096
TAIL_LINES = 12


class ChildProcess:
    """A process in a session of its own. ``start`` is called once."""

    def __init__(self, argv: Sequence[str], env: Mapping[str, str], log: Path) -> None:
        self._argv = list(argv)
        self._env = dict(env)
        self.log = log
        self._process: asyncio.subprocess.Process | None = None

    @property
    def pid(self) -> int:
        """Process id, 0 before the start."""
        return self._process.pid if self._process else 0

    @property
    def is_alive(self) -> bool:
        """Started and not yet seen to end."""
        return self._process is not None and self._process.returncode is None

    async def start(self) -> None:
        """Raises InvalidArgumentError when there is no such program.

        Raises UnavailableError when its log can't be written.
        """
        with self._opened_log() as log:
            try:
                self._process = await asyncio.create_subprocess_exec(
                    *self._argv,
                    env=self._env,
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
            except OSError as error:
                raise InvalidArgumentError(
                    f"{self._argv[0]} can't be run ({error}). Run scripts/setup_sglang.py, or "
                    "correct TROUPE_ROLLOUT_SGLANG_PYTHON."
                ) from error

    def _opened_log(self) -> BinaryIO:
        try:
            # A cleaner of temporary folders may have removed it from under a server that ran long.
            self.log.parent.mkdir(parents=True, exist_ok=True)
            with contextlib.suppress(FileNotFoundError):
                self.log.replace(self.log.with_suffix(".previous.log"))
            return self.log.open("ab")
        except OSError as error:
            raise UnavailableError(
                f"the server's log {self.log} can't be written ({error}). Free space there, or set "
                "TROUPE_ROLLOUT_SGLANG_WORK_DIR to a folder that can."
            ) from error

    async def wait(self) -> int:
        """Exit status; negative is a signal."""
        assert self._process is not None
        return await self._process.wait()

    async def stop(self) -> None:
        """Terminate the whole group, then kill it. A process that is gone is fine.

        Raises UnavailableError when one of the group lives on: it may hold memory of a device.
        """
        if self._process is None:
            return
        try:
            if self._process.returncode is None:
                self._signal(signal.SIGTERM)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(TERM_TIMEOUT_S):
                        await self._process.wait()
        finally:  # whoever is left of the group, also when the caller's time is up
            self._signal(signal.SIGKILL)
        try:
            async with asyncio.timeout(KILL_TIMEOUT_S):
                await self._process.wait()
                while await asyncio.to_thread(is_group_alive, self.pid):  # noqa: ASYNC110 - a process
                    await asyncio.sleep(KILL_POLL_S)
        except TimeoutError as error:
            raise UnavailableError(
                f"a process of group {self.pid} did not end within {KILL_TIMEOUT_S:g} s of SIGKILL "
                "(see `ps -o pid,stat,wchan,args`): a driver may keep it. Restart the machine."
            ) from error

    def tail(self) -> str:
        """The last lines of the log, for an error message."""
        try:
            with self.log.open("rb") as file:
                file.seek(max(0, self.log.stat().st_size - TAIL_BYTES))
                text = file.read().decode(errors="replace")
        except OSError:
            return "(no log)"
        return " | ".join(line.strip() for line in text.splitlines()[-TAIL_LINES:] if line.strip())

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)
