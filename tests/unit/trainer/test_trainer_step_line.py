"""The last line of the trainer's benchmark says what was measured, and how much it varied."""

import json
from typing import Any

from benchmarks.trainer_step import SHAPES, last_line


def test_last_line_when_two_shapes_were_measured_then_spec_median_and_spread_name_both() -> None:
    def row(shape: str, ratio: float) -> dict[str, Any]:
        return {"shape": shape, "ratio_to_bare": ratio, "ratio_spread": [ratio - 0.1, ratio]}

    line = json.loads(json.dumps(last_line([row("tiny-full", 0.9), row("tiny-lora", 0.5)], 7)))
    assert line["n"] == 7
    assert line["median"] == {"tiny-full": 0.9, "tiny-lora": 0.5}
    assert line["spread"] == {"tiny-full": [0.8, 0.9], "tiny-lora": [0.4, 0.5]}
    assert line["spec"].keys() == {"tiny-full", "tiny-lora"}
    assert line["spec"]["tiny-lora"]["group_size"] == SHAPES["tiny-lora"].group_size
    assert [goal["holds"] for goal in line["goals"]] == [True, False]
