"""StrBuild: words of block letters from CoMLRL's Minecraft environments.

Format: https://github.com/OpenMLRL/LLM_Collab_Minecraft, ``str_build/dataset/data.csv`` (string,
difficulty). The letters are 5 by 5 cells, two apart, upright at z = 0, in a chequered pattern of
the first block of one builder and the second of the other, as ``build_target_color_map`` draws it
with the published configuration. All ten rows are test here; the publisher trains on eight.
"""

from typing import Any

from troupe.data.dataset import Dataset, RefusedRowError, Row
from troupe.data.fields import optional_text, text
from troupe_tasks.building.blueprint import AIR, Blueprint

SPACING = 2
EVEN, ODD = "p", "o"
MATERIALS = {EVEN: "oak_planks", ODD: "obsidian"}

# The glyphs of LLM_Collab_Minecraft (MIT, Copyright (c) 2025 OpenMLRL): rows from the top, in hex,
# the highest of five bits on the left.
_GLYPHS = {
    "A": "0e 11 1f 11 11",
    "B": "1e 11 1e 11 1e",
    "C": "0f 10 10 10 0f",
    "D": "1e 11 11 11 1e",
    "E": "1f 10 1e 10 1f",
    "F": "1f 10 1e 10 10",
    "G": "0f 10 17 11 0f",
    "H": "11 11 1f 11 11",
    "I": "1f 04 04 04 1f",
    "J": "07 02 02 12 0c",
    "K": "11 12 1c 12 11",
    "L": "10 10 10 10 1f",
    "M": "11 1b 15 11 11",
    "N": "11 19 15 13 11",
    "O": "0e 11 11 11 0e",
    "P": "1e 11 1e 10 10",
    "Q": "0e 11 11 13 0f",
    "R": "1e 11 1e 12 11",
    "S": "0f 10 0e 01 1e",
    "T": "1f 04 04 04 04",
    "U": "11 11 11 11 0e",
    "V": "11 11 11 0a 04",
    "W": "11 11 15 1b 11",
    "X": "11 0a 04 0a 11",
    "Y": "11 0a 04 04 04",
    "Z": "1f 02 04 08 1f",
}


def convert(row: Row) -> dict[str, Any]:
    """A blueprint one cell deep, five layers high."""
    word = text(row, "string").upper()
    if not set(word) <= _GLYPHS.keys():
        raise RefusedRowError("no_glyph")
    from_top = [(AIR * SPACING).join(_glyph_row(letter, n) for letter in word) for n in range(5)]
    layers = tuple(
        ("".join(_material(x + y) if cell == "#" else AIR for x, cell in enumerate(cells)),)
        for y, cells in enumerate(reversed(from_top))
    )
    return {
        "id": f"str_build/{word}",
        "materials": MATERIALS,
        "layers": layers,
        "needs_support": False,
        "source": "str_build",
        "difficulty": optional_text(row, "difficulty"),
    }


def _glyph_row(letter: str, number: int) -> str:
    bits = int(_GLYPHS[letter].split()[number], 16)
    return "".join("#" if bits >> (4 - x) & 1 else AIR for x in range(5))


def _material(place: int) -> str:
    return EVEN if place % 2 == 0 else ODD


DATASET = Dataset(
    name="str_build",
    task="build",
    title="StrBuild (LLM Collaboration, Minecraft)",
    hub_id="OpenMLRL/LLM_Collab_Minecraft",
    splits={"test": ("str_build/dataset/data.csv", "data.csv")},
    schema=Blueprint,
    convert=convert,
    licence="MIT",
    citation="OpenMLRL 2025, LLM Collaboration - Minecraft",
    format_source="https://github.com/OpenMLRL/LLM_Collab_Minecraft",
    contamination_fields=("id",),
)
