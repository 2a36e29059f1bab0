"""Whose failure it is when a team can't be sent or fetched: this machine's disk, or the hub."""

import errno

import pytest

from troupe.errors import InvalidArgumentError, UnavailableError
from troupe.publishing import hub
from troupe.publishing.places import HubPlace

pytest.importorskip("huggingface_hub", reason="the hub's client is not installed")


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), "No space left"),
        (FileNotFoundError(errno.ENOENT, "No such file", "a.safetensors"), "a.safetensors can't"),
        (PermissionError(errno.EACCES, "Permission denied", "teams"), "teams can't"),
    ],
)
def test_hub_when_a_file_of_this_machine_fails_then_no_other_try_is_asked_for(
    error: OSError, told: str
) -> None:
    with (
        pytest.raises(InvalidArgumentError, match=told) as raised,
        hub._errors(HubPlace("acme/team", "")),
    ):
        raise error
    assert not raised.value.retryable


def test_hub_when_the_connection_fails_then_the_network_is_named() -> None:
    with (
        pytest.raises(UnavailableError, match="the hub does not answer"),
        hub._errors(HubPlace("acme/team", "")),
    ):
        raise ConnectionResetError(errno.ECONNRESET, "Connection reset by peer")
