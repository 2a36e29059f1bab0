"""HouseBuild: layered blueprints of houses from CoMLRL's Minecraft environments.

Format: https://github.com/OpenMLRL/LLM_Collab_Minecraft, ``house_build/dataset/data.json``
(task_id, inventory of letter to block, target_spec.layers with y and rows along z). All ten rows
are test here; the publisher trains on the first eight. Its blocks may hang in the air.
"""

from collections.abc import Mapping
from typing import Any, cast

from troupe.data.dataset import Dataset, RefusedRowError, Row
from troupe.data.fields import text
from troupe_tasks.building.blueprint import AIR, Blueprint


def convert(row: Row) -> dict[str, Any]:
    """A blueprint whose letters are the published ones, air excepted."""
    inventory, target = row.get("inventory"), row.get("target_spec")
    if not isinstance(inventory, Mapping) or not isinstance(target, Mapping):
        raise RefusedRowError("no_blueprint")
    names = {
        str(key): str(value).lower().removeprefix("minecraft:")
        for key, value in cast("Mapping[Any, Any]", inventory).items()
    }
    layers = cast("Mapping[str, Any]", target).get("layers")
    if not isinstance(layers, list) or not layers:
        raise RefusedRowError("no_layers")
    by_height: dict[int, tuple[str, ...]] = {}
    for layer in cast("list[dict[str, Any]]", layers):
        by_height[int(layer["y"])] = tuple(_row(str(cells), names) for cells in layer["rows"])
    used = {letter for rows in by_height.values() for cells in rows for letter in cells} - {AIR}
    return {
        "id": f"house_build/{text(row, 'task_id')}",
        "materials": {letter: names[letter] for letter in sorted(used)},
        "layers": tuple(by_height[y] for y in sorted(by_height)),
        "needs_support": False,
        "source": "house_build",
    }


def _row(cells: str, names: Mapping[str, str]) -> str:
    if not set(cells) <= names.keys():
        raise RefusedRowError("unknown_block")
    return "".join(AIR if names[cell] == "air" else cell for cell in cells)


DATASET = Dataset(
    name="house_build",
    task="build",
    title="HouseBuild (LLM Collaboration, Minecraft)",
    hub_id="OpenMLRL/LLM_Collab_Minecraft",
    splits={"test": ("house_build/dataset/data.json", "data.json")},
    schema=Blueprint,
    convert=convert,
    licence="MIT",
    citation="OpenMLRL 2025, LLM Collaboration - Minecraft",
    format_source="https://github.com/OpenMLRL/LLM_Collab_Minecraft",
    contamination_fields=("id",),
)
