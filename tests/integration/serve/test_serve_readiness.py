"""A served team is ready while its engine answers, at both ports."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from troupe.runtime.serving import serve
from troupe_router.serve import app as serve_app
from troupe_router.serve.settings import ServeSettings
from troupe_router.serve.team import ServedTeam


class Engine:
    """Its server may be down."""

    is_up = True

    def is_ready(self) -> bool:
        return self.is_up


class Watched(serve_app.ServeApp):
    """Asks both ports for its readiness while the engine is up, down and up again."""

    def __init__(self, settings: ServeSettings, engine: Engine) -> None:
        super().__init__(settings)
        self.settings = settings
        self.engine = engine
        self.seen: list[tuple[int, int]] = []

    async def run(self) -> None:
        rest = self._url().removesuffix("/v1")
        async with httpx.AsyncClient(trust_env=False, timeout=20) as http:
            for self.engine.is_up in (True, False, True):
                admin = await http.get(f"http://{self.settings.admin_address}/readyz")
                asked = await http.get(f"{rest}/readyz")
                self.seen.append((admin.status_code, asked.status_code))


def test_readiness_when_the_engine_is_down_then_the_admin_port_says_what_rest_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine: Any = Engine()

    @asynccontextmanager
    async def opened(*_: Any, **__: Any) -> AsyncIterator[ServedTeam]:
        yield ServedTeam(engine, {}, ())

    monkeypatch.setattr(serve_app, "open_team", lambda *_: "a folder")
    monkeypatch.setattr(serve_app, "opened_team", opened)
    settings = ServeSettings(team=tmp_path, rest_address="127.0.0.1:0")
    service = Watched(settings, engine)
    assert serve(service, settings) == 0
    assert service.seen == [(200, 200), (503, 503), (200, 200)]
