"""Whose failure it is when a team can't be sent or fetched: a file here, the disk, or the hub."""

import errno
from collections.abc import Callable
from pathlib import Path

import pytest
from run_folders import write_run

from troupe.errors import InvalidArgumentError, UnavailableError
from troupe.publishing import hub
from troupe.publishing.content import ContentOptions, content_of
from troupe.publishing.page.write import page_of
from troupe.publishing.places import HubPlace
from troupe.publishing.team_folder import open_team
from troupe.training.results import RunResults

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


def sent(run: Path) -> object:
    return content_of(open_team(run), ContentOptions(), at="")


@pytest.mark.parametrize("text", ['{"job_id": "pa', "[]"])
@pytest.mark.parametrize("read", [open_team, page_of, lambda run: repr(RunResults(run))])
def test_run_when_its_summary_is_damaged_then_the_file_is_named(
    tmp_path: Path, text: str, read: Callable[[Path], object]
) -> None:
    run = write_run(tmp_path / "pair-1")
    (run / "summary.json").write_text(text)
    with pytest.raises(InvalidArgumentError, match=r"summary\.json"):
        read(run)


@pytest.mark.parametrize(
    ("name", "read"),
    [
        ("spec.json", lambda run: RunResults(run).policies),
        ("policies/tool/adapter/adapter_config.json", sent),
    ],
)
def test_run_when_a_small_file_is_cut_then_it_is_named(
    tmp_path: Path, name: str, read: Callable[[Path], object]
) -> None:
    run = write_run(tmp_path / "pair-1")
    (run / name).write_text("{")
    with pytest.raises(InvalidArgumentError, match=name):
        read(run)


def test_team_when_weights_are_cut_then_nothing_is_sent(tmp_path: Path) -> None:
    run = write_run(tmp_path / "pair-1")
    weights = run / "policies/tool/adapter/adapter_model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])
    with pytest.raises(InvalidArgumentError, match=r"adapter_model\.safetensors is not a well"):
        sent(run)
