"""Starts programs in the env service's sandbox, for those that run what a model wrote.

Owns what such a run sees: its interpreter, its folder, an empty working folder, and of all networks
the endpoint alone, whose address is the same in every run.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any

from troupe.errors import InvalidArgumentError
from troupe.sandbox.sandbox import CommandSandbox, Limits, Sandbox, SandboxCommand, SandboxSession
from troupe_tasks.programs.calls import ProgramRun
from troupe_tasks.programs.endpoint import ProgramEndpoint
from troupe_tasks.programs.launcher import HOST, environment_of
from troupe_tasks.programs.params import ProgramParams
from troupe_tasks.programs.settings import LOOPBACK

PORT = 8000
ORIGIN = f"http://{LOOPBACK}:{PORT}"
"""Where a run in the sandbox finds the endpoint."""


class SandboxedLauncher:
    """See ``ProgramLauncher``: every run is a new interpreter in a sandbox of its own."""

    def __init__(
        self,
        sandbox: Sandbox | None,
        params: ProgramParams,
        python: str,
        folder: str | None,
        endpoint: Callable[[], ProgramEndpoint],
    ) -> None:
        assert params.sandbox is not None
        if not isinstance(sandbox, CommandSandbox):
            raise InvalidArgumentError(
                "this program asks for the sandbox, and the one here runs no long-lived commands; "
                "play it by an env service with TROUPE_ENV_SANDBOX=namespaces, or without "
                "task.params.sandbox",
                pointer="/task/params/sandbox",
            )
        self._sandbox = sandbox
        self._python, self._folder = python, folder
        self._endpoint = endpoint
        self._limits = Limits(
            wall_time_s=params.run_s,
            cpu_time_s=params.cpu_s,
            memory_bytes=params.sandbox.memory_mib << 20,
            num_processes=params.sandbox.num_processes,
            file_bytes=params.sandbox.disk_mib << 20,
        )

    def start(
        self, run: ProgramRun, order: Mapping[str, Any], warm: Callable[[], object]
    ) -> SandboxSession:
        """Begin ``run`` as ``order`` says; ``warm`` is for those that fork."""
        command = SandboxCommand(
            python=self._python,
            script=HOST.read_text("utf-8"),
            arguments=("once",),
            stdin=json.dumps(order) + "\n",
            environment=environment_of(self._python) | {"HOME": "/tmp"},
            port=PORT,
            shown=() if self._folder is None else (self._folder,),
        )
        session = self._sandbox.open(command, self._limits)
        try:
            self._endpoint().accept(run, session.listener)
        except BaseException:
            session.kill()
            raise
        return session
