"""A sandbox that is broken fails the suite; only a machine without namespaces skips it."""

import pytest
import sandbox_here

from troupe.errors import InvalidArgumentError
from troupe_env.sandbox import open_sandbox, probe
from troupe_env.sandbox.settings import SandboxSettings


def refused(monkeypatch: pytest.MonkeyPatch) -> InvalidArgumentError:
    """What ``open_sandbox`` raises when a probe finds a fault."""
    monkeypatch.setattr(probe, "_isolates", lambda sandbox: "a regression")
    with pytest.raises(InvalidArgumentError) as caught:
        open_sandbox(SandboxSettings(level="namespaces", workers=1))
    return caught.value


def test_sandbox_when_refused_where_unshare_works_then_the_test_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sandbox_here, "_UNSHARE", ("env",))
    with pytest.raises(pytest.fail.Exception, match="has to open"):
        sandbox_here.skip_or_fail(refused(monkeypatch))


@pytest.mark.parametrize("argv", [("env", "false"), ("no-such-program",)])
def test_sandbox_when_refused_where_unshare_fails_too_then_the_test_is_skipped(
    argv: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sandbox_here, "_UNSHARE", argv)
    with pytest.raises(pytest.skip.Exception, match="refuses namespaces"):
        sandbox_here.skip_or_fail(refused(monkeypatch))
