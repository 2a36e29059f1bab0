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


def test_sandbox_when_refused_where_namespaces_work_then_the_test_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sandbox_here, "_ASK", "")
    with pytest.raises(pytest.fail.Exception, match="has to open"):
        sandbox_here.skip_or_fail(refused(monkeypatch))


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("_ASK", "raise SystemExit('unshare: Operation not permitted')", "not permitted"),
        ("_OLDEST_KERNEL", (99, 0), "Linux "),
    ],
)
def test_sandbox_when_refused_where_namespaces_do_not_work_then_the_test_is_skipped(
    name: str, value: object, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sandbox_here, name, value)
    with pytest.raises(pytest.skip.Exception, match=f"refuses namespaces .*{why}"):
        sandbox_here.skip_or_fail(refused(monkeypatch))
