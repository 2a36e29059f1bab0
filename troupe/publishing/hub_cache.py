"""Models of the hub that are in this machine's cache already. Never opens a connection."""

from dataclasses import dataclass
from pathlib import Path

from troupe.ids import is_hub_id


@dataclass(frozen=True, slots=True)
class CachedModel:
    """A snapshot in the hub client's cache: its commit and its folder."""

    revision: str
    folder: Path


def cached_model(hub_id: str, revision: str = "") -> CachedModel | None:
    """The cached snapshot of a model; None where there is none, or no hub client."""
    if not is_hub_id(hub_id):
        return None
    try:
        from huggingface_hub import try_to_load_from_cache
    except ImportError:
        return None
    path = try_to_load_from_cache(hub_id, "config.json", revision=revision or None)
    if not isinstance(path, str):
        return None
    folder = Path(path).parent
    return CachedModel(folder.name, folder)
