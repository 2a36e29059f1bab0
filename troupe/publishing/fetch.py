"""Finds a team by its name on the command line: a folder, a run, a hub or a registry."""

from pathlib import Path

from troupe.publishing.hub import fetch_bases, fetch_from_hub
from troupe.publishing.manifest import TeamManifest
from troupe.publishing.oci import fetch_from_registry
from troupe.publishing.places import FolderPlace, HubPlace, place_kind, read_place
from troupe.publishing.settings import PublishSettings
from troupe.publishing.team_folder import TeamFolder, open_team


def fetch_team(text: str, cache: Path, settings: PublishSettings | None = None) -> Path:
    """The folder of the team that ``text`` names; what is remote is kept in ``cache``/teams.

    Every digest was checked. Models of the hub that the team needs are fetched too.

    Raises InvalidArgumentError, NotFoundError, ForbiddenError, UnavailableError, DeadlineError.
    """
    if not place_kind(text):
        return Path(text).expanduser()
    place, settings = read_place(text), settings or PublishSettings()
    if isinstance(place, FolderPlace):
        return Path(place.path).expanduser()
    if isinstance(place, HubPlace):
        folder = fetch_from_hub(place, cache / "teams" / "hub", settings)
    else:
        folder = fetch_from_registry(place, cache / "teams" / "oci", settings)
    fetch_bases(TeamManifest.read(folder), settings)
    return folder


def find_team(text: str, cache: Path) -> TeamFolder:
    """The team that ``text`` names, ready to be loaded; see ``fetch_team`` and ``open_team``."""
    return open_team(fetch_team(text, cache))
