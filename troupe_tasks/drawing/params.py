"""Parameters of a family whose boards can be drawn."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

Observe = Literal["text", "image"]


class ObserveParams(BaseModel):
    """How agents are shown the board."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    observe: Observe = Field(
        default="text",
        description="text: the board in words; image: as an image, of which no word of a prompt "
        "tells anything.",
    )
    cell_px: Literal[28, 32, 56, 64] = Field(
        default=28,
        description="Pixels per side of a cell of the image: 28 or 56 for Qwen2.5-VL, 32 or 64 for "
        "Qwen3-VL, which then see it in its own size (Qwen3-VL from 256 x 256 pixels on).",
    )

    @property
    def image_cell_px(self) -> int | None:
        """Pixels per side of a cell; None where the board is shown in words."""
        return self.cell_px if self.observe == "image" else None
