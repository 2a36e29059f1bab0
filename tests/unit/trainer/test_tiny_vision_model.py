"""The made-here vision-language model: loadable, reproducible, and warm-started on images."""

from itertools import islice
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
import torch
from image_world import CELLS, CellOfDisc, ColourOfImage
from transformers import AutoModelForImageTextToText, AutoTokenizer
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

from troupe.errors import InvalidArgumentError
from troupe.vision.layout import position_ids
from troupe.vision.model import VisionModel, vision_model_of
from troupe.vision.patches import patches_of
from troupe_trainer.tiny_model.build import build
from troupe_trainer.tiny_model.demonstrations import TokenDemonstration, demonstrations
from troupe_trainer.tiny_model.recipe import Recipe, TinyModelShape, TinyVisionShape, WarmStart
from troupe_trainer.tiny_model.vision import preprocessor_of

KINDS = ("qwen2_5_vl", "qwen3_vl")
TASK = "image_world:ColourOfImage"


def recipe(kind: Any = "qwen2_5_vl", careful: int = 3, seed: int = 3) -> Recipe:
    return Recipe(
        task=TASK,
        seed=seed,
        shape=TinyModelShape(hidden_size=64, num_layers=2, num_heads=2, intermediate_size=128),
        vision=TinyVisionShape(kind=kind, depth=1, hidden_size=64, intermediate_size=64),
        warm_start=WarmStart(
            num_careful_steps=careful, num_careless_steps=0, batch_size=16, solo_share=0.0
        ),
    )


def _loaded(folder: Path, kind: Any) -> tuple[Any, Any, VisionModel]:
    model: Any = AutoModelForImageTextToText.from_pretrained(folder).eval()
    preprocessor = preprocessor_of(TinyVisionShape(kind=kind))
    vision = vision_model_of("tiny", model.config.to_dict(), preprocessor)
    assert vision is not None
    return model, AutoTokenizer.from_pretrained(folder), vision


@pytest.mark.parametrize("kind", KINDS)
def test_build_when_it_sees_then_transformers_loads_model_tokenizer_and_image_processor(
    tmp_path: Path, kind: Any
) -> None:
    assert build(recipe(kind), tmp_path / "m")
    model, tokenizer, vision = _loaded(tmp_path / "m", kind)
    assert model.config.model_type == kind
    processor = Qwen2VLImageProcessorPil.from_pretrained(tmp_path / "m")
    assert (processor.patch_size, processor.merge_size) == (vision.patch_size, vision.merge_size)
    assert tokenizer.convert_tokens_to_ids("<|image_pad|>") == vision.image_token_id
    content = [{"type": "image"}, {"type": "text", "text": "colour ?"}]
    chats = [[{"role": "user", "content": c}] for c in (content, "colour ?")]
    seen, read = (
        tokenizer.apply_chat_template(chat, add_generation_prompt=True, tokenize=False)
        for chat in chats
    )
    assert seen.replace("<|vision_start|><|image_pad|><|vision_end|>", "") == read
    assert not build(recipe(kind), tmp_path / "m")


def test_build_when_repeated_then_bit_equal(tmp_path: Path) -> None:
    for name in "ab":
        build(recipe(), tmp_path / name)
    one, other = ((tmp_path / name / "model.safetensors").read_bytes() for name in "ab")
    assert one == other


@pytest.mark.parametrize("kind", KINDS)
def test_warm_start_when_the_answer_is_in_the_image_then_the_model_looks_at_it(
    tmp_path: Path, kind: Any
) -> None:
    build(recipe(kind, careful=60), tmp_path / "m")
    model, tokenizer, vision = _loaded(tmp_path / "m", kind)
    start = WarmStart(num_careful_steps=1, num_careless_steps=0, slip_rate=0.0, solo_share=0.0)
    samples = list(islice(demonstrations(ColourOfImage(), tokenizer, start, Random(9), vision), 40))
    right = sum(_answer(model, vision, s) == s.completion[0] for s in samples)
    assert right >= 36, "the colours are three: a model that guesses gets 13"


def test_warm_start_when_the_answer_is_a_place_in_the_image_then_the_model_reads_the_board(
    tmp_path: Path,
) -> None:
    start = WarmStart(num_careful_steps=90, num_careless_steps=0, batch_size=32, solo_share=0.0)
    of_cells = recipe().model_copy(update={"task": "image_world:CellOfDisc", "warm_start": start})
    build(of_cells, tmp_path / "m")
    model, tokenizer, vision = _loaded(tmp_path / "m", "qwen2_5_vl")
    samples = list(islice(demonstrations(CellOfDisc(), tokenizer, start, Random(9), vision), 40))
    right = sum(_answer(model, vision, s) == s.completion[0] for s in samples)
    assert right >= 30, f"the cells are {len(CELLS)}: a model that guesses gets 4"


@torch.no_grad()
def _answer(model: Any, vision: VisionModel, sample: TokenDemonstration) -> int:
    patches = np.concatenate([patches_of(image, vision) for image in sample.images])
    positions = torch.from_numpy(position_ids(sample.prompt, sample.grids, vision))
    logits = model(
        input_ids=torch.tensor([sample.prompt]),
        position_ids=positions[:, None],
        pixel_values=torch.from_numpy(patches),
        image_grid_thw=torch.tensor([[1, *grid] for grid in sample.grids]),
    ).logits
    return int(logits[0, -1].argmax())


def test_build_when_the_task_shows_images_and_the_model_reads_text_then_refused(
    tmp_path: Path,
) -> None:
    blind = recipe().model_copy(update={"vision": None})
    with pytest.raises(InvalidArgumentError, match="--vision"):
        build(blind, tmp_path / "m")
