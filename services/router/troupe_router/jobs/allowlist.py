"""What a spec may name of this machine: modules, folders of models and data, hub ids, hosts.

Where REST listens on loopback alone, whoever submits could run the same code directly, so all is
allowed. On any other address only what the operator lists is.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Self

from troupe.errors import InvalidArgumentError
from troupe.runtime.hosts import host_of, is_loopback
from troupe.runtime.tracking.settings import MlflowSettings
from troupe_router.settings import RouterSettings


@dataclass(frozen=True, slots=True)
class Allowlist:
    """None of ``modules`` or ``folders`` means all. Example: ``Allowlist(("my_tasks",), None)``."""

    modules: tuple[str, ...] | None = None
    folders: tuple[Path, ...] | None = None
    hub_ids: tuple[str, ...] = ("*",)
    tracker_hosts: tuple[str, ...] | None = None
    data: tuple[Path, ...] | None = None
    copies: Mapping[str, str] = field(default_factory=dict[str, str])
    """Folders of hub ids that are on this machine."""
    unmounted: Path | None = None
    """The run folders, where rollouts do not mount them and so can load no model of theirs."""

    @classmethod
    def from_settings(cls, settings: RouterSettings) -> Self:
        """What the settings say, and what follows from the address where they say nothing."""
        is_private = is_loopback(settings.rest_address.rpartition(":")[0])
        modules = _parts(settings.plugin_modules, None if is_private else "")
        folders = _parts(settings.model_folders, None if is_private else "models")
        data = _parts(settings.data_folders, None if is_private else "data")
        return cls(
            modules=None if modules is None or "*" in modules else modules,
            folders=(
                None
                if folders is None or "*" in folders
                # A job's own model can be trained on.
                else (*(Path(folder).resolve() for folder in folders), settings.runs_dir.resolve())
            ),
            hub_ids=_parts(settings.model_ids, "") or (),
            data=(
                None
                if data is None or "*" in data
                else tuple(Path(folder).resolve() for folder in data)
            ),
            tracker_hosts=_parts(settings.tracker_hosts, None if is_private else ""),
            copies=settings.copies,
            unmounted=None if settings.models_of_runs else settings.runs_dir.resolve(),
        )

    def folder_fault(self, folder: Path) -> str | None:
        """Why a spec may not name ``folder``, or None. Links are followed first."""
        resolved = folder.resolve()
        if self.unmounted is not None and resolved.is_relative_to(self.unmounted):
            return (
                f"'{folder}' lies in the run folders, which the rollouts of this router do not "
                "mount; put a copy of it into the models volume and name that, or have the "
                "operator mount them (the chart's rollout.mountRuns)"
            )
        if self.folders is None or any(resolved.is_relative_to(root) for root in self.folders):
            return None
        return (
            f"the folder '{folder}' lies outside of those that this router takes models from "
            f"({', '.join(map(str, self.folders))}); put the model there, or have the operator "
            "set TROUPE_ROUTER_MODEL_FOLDERS"
        )

    def data_fault(self, path: Path) -> str | None:
        """Why a task of a spec may not read ``path``, or None. Links are followed first."""
        if self.data is None or any(path.resolve().is_relative_to(root) for root in self.data):
            return None
        return (
            f"'{path}' lies outside of the folders that tasks of this router read data from "
            f"({', '.join(map(str, self.data)) or 'none'}); put the data there, or have the "
            "operator set TROUPE_ROUTER_DATA_FOLDERS"
        )

    def hub_fault(self, model: str) -> str | None:
        """Why a spec may not name this hub id, or None."""
        if any(fnmatchcase(model, pattern) for pattern in self.hub_ids):
            return None
        return (
            f"this router takes no model '{model}' from the hub (it takes "
            f"{', '.join([*self.copies, *self.hub_ids]) or 'none'}); have the operator download it "
            "(the chart's models.download), or set TROUPE_ROUTER_MODEL_IDS"
        )

    def tracker_fault(self, url: str) -> str | None:
        """Why a tracker of a spec may not talk to ``url``, or None. Asks no name server."""
        if self.tracker_hosts is None or url.rstrip("/") == MlflowSettings().uri.rstrip("/"):
            return None
        try:
            host = host_of(url)
        except InvalidArgumentError as error:
            return error.message
        if any(fnmatchcase(host, pattern.lower()) for pattern in self.tracker_hosts):
            return None
        return (
            f"this router's trackers do not talk to '{host[:100]}'; leave the address out to use "
            "the operator's server, or have the operator set TROUPE_ROUTER_TRACKER_HOSTS"
        )


def _parts(setting: str | None, default: str | None) -> tuple[str, ...] | None:
    text = default if setting is None else setting
    if text is None:
        return None
    return tuple(part.strip() for part in text.split(",") if part.strip())
