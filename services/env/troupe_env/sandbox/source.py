"""The service's single sandbox, opened on first use or, where it is required, at start.

Never opens a weaker level than the settings name, and never a second sandbox.
"""

import threading

from troupe.errors import InvalidArgumentError, UnavailableError
from troupe.sandbox.sandbox import Sandbox
from troupe_env.sandbox import open_sandbox
from troupe_env.sandbox.settings import SandboxSettings


class SandboxSource:
    """Opens once; safe to use from several threads."""

    def __init__(self, settings: SandboxSettings) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._sandbox: Sandbox | None = None
        self._refusal: InvalidArgumentError | None = None
        self._is_closed = False

    @property
    def is_required(self) -> bool:
        """The operator named a level: without it the service must not serve."""
        return self._settings.level is not None

    def get(self) -> Sandbox:
        """The sandbox; raises InvalidArgumentError where its level is not possible."""
        with self._lock:
            if self._is_closed:
                raise UnavailableError("The sandbox is closed: its service is stopping.")
            if self._refusal is not None:
                raise InvalidArgumentError(self._refusal.message)
            if self._sandbox is None:
                try:
                    self._sandbox = open_sandbox(self._settings)
                except InvalidArgumentError as error:
                    self._refusal = error
                    raise
            return self._sandbox

    def close(self) -> None:
        """End everything that runs."""
        with self._lock:
            self._is_closed = True
            sandbox, self._sandbox = self._sandbox, None
        if sandbox is not None:
            sandbox.close()
