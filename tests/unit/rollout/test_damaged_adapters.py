"""Evaluations and endpoints say which adapter is damaged."""

from pathlib import Path

import pytest
from run_folders import write_adapter

from troupe.errors import InvalidArgumentError
from troupe.evaluation.refs import WeightsRef
from troupe.evaluation.serving import serving_engine


@pytest.mark.parametrize(
    ("name", "damaged"),
    [
        ("adapter_model.safetensors", b"cut"),
        ("adapter_config.json", b"{"),
        ("adapter_config.json", b"\xff"),
        ("adapter_config.json", b'{"r": 1000000000, "lora_alpha": 1}'),
        ("adapter_config.json", None),
    ],
)
async def test_adapter_when_a_file_is_damaged_then_no_other_try_is_asked_for(
    model_dir: Path, tmp_path: Path, name: str, damaged: bytes | None
) -> None:
    adapter = write_adapter(tmp_path / "adapter", base=str(model_dir), rank=2)
    (adapter / name).unlink()
    if damaged is not None:
        (adapter / name).write_bytes(damaged)
    ref = WeightsRef(str(model_dir), str(adapter))
    with pytest.raises(InvalidArgumentError, match=str(adapter)):
        async with serving_engine({ref: "tool"}, "cpu", {ref: "float32"}):
            pass
