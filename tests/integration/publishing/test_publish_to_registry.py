"""``oci:``: a team in a registry and back: Docker's, and one that asks for tokens."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pydantic import SecretStr
from registry_server import (
    PASSWORD,
    USER,
    TokenRegistry,
    docker_registry,
    token_registry,
)
from run_folders import write_run

from troupe.errors import (
    ForbiddenError,
    InvalidArgumentError,
    NotFoundError,
    UnavailableError,
)
from troupe.publishing.content import ContentOptions, TeamContent, content_of
from troupe.publishing.manifest import TeamManifest
from troupe.publishing.oci import fetch_from_registry, send_to_registry
from troupe.publishing.places import OciPlace, read_place
from troupe.publishing.registry import RegistryClient
from troupe.publishing.settings import PublishSettings
from troupe.publishing.team_folder import team_of_run

SETTINGS = PublishSettings(oci_username=USER, oci_password=SecretStr(PASSWORD), timeout_s=20)


@pytest.fixture
def content(tmp_path: Path) -> TeamContent:
    run = write_run(tmp_path / "run" / "pair-1")
    return content_of(team_of_run(run), ContentOptions(), at="")


@pytest.fixture
def registry() -> Iterator[TokenRegistry]:
    with token_registry() as started:
        yield started
        assert started.violations == []


@pytest.fixture
def place(registry: TokenRegistry) -> OciPlace:
    return OciPlace(registry.host, "team/pair", "v1")


def test_team_when_its_folder_cannot_be_made_then_that_is_said_and_not_the_registrys(
    content: TeamContent, place: OciPlace, tmp_path: Path
) -> None:
    send_to_registry(content, place, SETTINGS)
    (tmp_path / "full").write_text("no folder")
    with pytest.raises(InvalidArgumentError, match=r"full.*can't be read or written here"):
        fetch_from_registry(place, tmp_path / "full", SETTINGS)


def same_files(content: TeamContent, folder: Path) -> None:
    names = {p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file()}
    assert names == set(content.files)
    for name, file in content.files.items():
        assert (folder / name).read_bytes() == b"".join(file.chunks())


def test_team_when_sent_to_dockers_registry_then_it_comes_back_the_same(
    content: TeamContent, tmp_path: Path, free_port: Callable[[], int]
) -> None:
    if shutil.which("docker-registry") is None:
        pytest.skip("no docker-registry on this machine; install the package docker-registry")
    (tmp_path / "registry").mkdir()
    with docker_registry(tmp_path / "registry", free_port()) as host:
        place = OciPlace(host, "team/pair", "v1")
        address = send_to_registry(content, place, SETTINGS)
        assert send_to_registry(content, place, SETTINGS) == address
        by_tag = fetch_from_registry(place, tmp_path / "a", SETTINGS)
        by_digest = fetch_from_registry(read_place(address), tmp_path / "b", SETTINGS)  # pyright: ignore[reportArgumentType]
        with pytest.raises(NotFoundError, match="no such artifact"):
            fetch_from_registry(OciPlace(host, "team/pair", "v2"), tmp_path / "c", SETTINGS)
    same_files(content, by_tag)
    same_files(content, by_digest)


def test_team_when_the_registry_asks_for_a_token_then_it_comes_back_the_same(
    content: TeamContent, place: OciPlace, tmp_path: Path
) -> None:
    address = send_to_registry(content, place, SETTINGS)
    assert address.startswith(f"oci:{place.host}/team/pair@sha256:")
    fetched = fetch_from_registry(place, tmp_path / "cache", SETTINGS)
    same_files(content, fetched)
    assert TeamManifest.read(fetched).name == "pair"


def test_team_when_sending_broke_then_the_next_try_sends_no_blob_again(
    content: TeamContent, place: OciPlace, registry: TokenRegistry
) -> None:
    registry.is_broken = True
    with pytest.raises(UnavailableError, match="try again"):
        send_to_registry(content, place, SETTINGS)
    sent = registry.counts["blob"]
    assert sent > 0
    registry.is_broken = False
    send_to_registry(content, place, SETTINGS)
    assert registry.counts["blob"] == sent


def test_team_when_the_password_is_wrong_then_the_message_does_not_hold_it(
    content: TeamContent, place: OciPlace
) -> None:
    settings = PublishSettings(oci_username=USER, oci_password=SecretStr("wrong-password"))
    with pytest.raises(ForbiddenError, match="TROUPE_PUBLISH_OCI_PASSWORD") as refused:
        send_to_registry(content, place, settings)
    assert "wrong-password" not in refused.value.message


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (b"x" * (2 << 20), "more than 1048576 bytes"),
        (b"<html>", "no JSON object as a token"),
        (b"[]", "no JSON object as a token"),
        (b"{}", "without a token"),
        (b'{"token": 5}', "without a token"),
    ],
)
def test_team_when_the_token_service_sends_no_token_then_that_is_said(
    content: TeamContent, place: OciPlace, registry: TokenRegistry, answer: bytes, told: str
) -> None:
    registry.token_answer = answer
    with pytest.raises(UnavailableError, match=told):
        send_to_registry(content, place, SETTINGS)


@pytest.mark.parametrize("answer", [b"<html>", b"[]"])
def test_team_when_its_manifest_is_no_object_then_that_is_said(
    content: TeamContent, place: OciPlace, registry: TokenRegistry, tmp_path: Path, answer: bytes
) -> None:
    send_to_registry(content, place, SETTINGS)
    registry.manifests = dict.fromkeys(registry.manifests, answer)
    with pytest.raises(UnavailableError, match="no JSON object as a manifest"):
        fetch_from_registry(place, tmp_path / "cache", SETTINGS)


def test_team_when_the_registry_serves_other_bytes_then_nothing_is_kept(
    content: TeamContent, place: OciPlace, registry: TokenRegistry, tmp_path: Path
) -> None:
    send_to_registry(content, place, SETTINGS)
    digest = next(d for d, blob in registry.blobs.items() if len(blob) > 100)
    registry.blobs[digest] = b"x" * len(registry.blobs[digest])
    with pytest.raises(UnavailableError, match="other bytes"):
        fetch_from_registry(place, tmp_path / "cache", SETTINGS)


@pytest.mark.parametrize("name", ["../evil", "/etc/evil", "policies/../../evil"])
def test_team_when_a_layer_leads_out_of_the_folder_then_it_is_refused(
    content: TeamContent, place: OciPlace, tmp_path: Path, name: str
) -> None:
    send_to_registry(content, place, SETTINGS)
    with RegistryClient(place, SETTINGS) as client:
        _, document = client.manifest()
        document["layers"][0]["annotations"]["org.opencontainers.image.title"] = name
        client.put_manifest(document)
    with pytest.raises(InvalidArgumentError, match="plain path"):
        fetch_from_registry(place, tmp_path / "cache", SETTINGS)


def test_team_when_nobody_answers_then_the_error_says_so(
    content: TeamContent, free_port: Callable[[], int]
) -> None:
    place = OciPlace(f"127.0.0.1:{free_port()}", "team/pair", "v1")
    with pytest.raises(UnavailableError, match="does not answer"):
        send_to_registry(content, place, SETTINGS)
