"""Builds, from a recipe, a directory that transformers loads: `AutoModelForCausalLM`, or
`AutoModelForImageTextToText` where the model sees.

The directory appears whole or not at all, and a second build of the same recipe is a cache hit.
"""

import json
import shutil
import tempfile
from pathlib import Path
from random import Random
from typing import Any

import torch
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

from troupe.durable import make_folder, put
from troupe.tasks.optional import vocabulary_of
from troupe.tasks.registry import load_family
from troupe.vision.model import vision_model_of
from troupe_trainer.tiny_model.demonstrations import demonstrations
from troupe_trainer.tiny_model.embedding import embed_words
from troupe_trainer.tiny_model.recipe import Recipe, TinyModelShape
from troupe_trainer.tiny_model.tokenizer import END, PAD, make_tokenizer, token_id
from troupe_trainer.tiny_model.vision import preprocessor_of, vision_language_model
from troupe_trainer.tiny_model.warm_start import Progress, imitate

MANIFEST = "manifest.json"
_FORMAT = 1
"""Raised when the same recipe would give other bytes than before."""


def build(recipe: Recipe, out_dir: Path, progress: Progress | None = None) -> bool:
    """Build the model in ``out_dir``; True when it was built, False when it already existed.

    An ``out_dir`` that holds another recipe's model, or part of one, is replaced.
    """
    unset = {"vision"} if recipe.vision is None else None  # models of before it had a name stay
    manifest = {"format": _FORMAT, "recipe": recipe.model_dump(mode="json", exclude=unset)}
    if _read_manifest(out_dir) == manifest:
        return False
    make_folder(out_dir.parent)
    with tempfile.TemporaryDirectory(prefix=f".{out_dir.name}-", dir=out_dir.parent) as temporary:
        staged = Path(temporary) / "model"
        _make(recipe, staged, progress or _silent)
        (staged / MANIFEST).write_text(json.dumps(manifest, indent=2) + "\n")
        if out_dir.exists():
            shutil.move(out_dir, Path(temporary) / "replaced")
        put(staged, out_dir)
    return True


def _make(recipe: Recipe, directory: Path, progress: Progress) -> None:
    family = load_family(recipe.task, recipe.params, pointer="")
    words = vocabulary_of(family)
    sees = recipe.vision is not None
    tokenizer = make_tokenizer(words, recipe.shape.max_positions, sees=sees)
    # One thread: a network this small only waits for the others, and sums stay in one order.
    torch.set_num_threads(1)
    torch.manual_seed(recipe.seed)
    model: Any = (
        Qwen3ForCausalLM(_config(recipe.shape, tokenizer))
        if recipe.vision is None
        else vision_language_model(recipe.shape, recipe.vision, tokenizer)
    )
    embed_words(model, tokenizer, words, recipe.shape.embedding_std)
    warm_start = recipe.warm_start
    vision = None
    if recipe.vision is not None:
        preprocessor = preprocessor_of(recipe.vision)
        vision = vision_model_of(recipe.task, model.config.to_dict(), preprocessor)
    samples = demonstrations(family, tokenizer, warm_start, Random(recipe.seed), vision)
    imitate(model, samples, warm_start, progress, vision)
    model.save_pretrained(directory)
    tokenizer.save_pretrained(directory)
    if recipe.vision is not None:
        text = json.dumps(preprocessor_of(recipe.vision), indent=2)
        (directory / "preprocessor_config.json").write_text(text + "\n")


def _config(shape: TinyModelShape, tokenizer: PreTrainedTokenizerFast) -> Qwen3Config:
    return Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=shape.hidden_size,
        num_hidden_layers=shape.num_layers,
        num_attention_heads=shape.num_heads,
        num_key_value_heads=shape.num_heads,
        head_dim=shape.hidden_size // shape.num_heads,
        intermediate_size=shape.intermediate_size,
        max_position_embeddings=shape.max_positions,
        tie_word_embeddings=True,
        pad_token_id=token_id(tokenizer, PAD),
        eos_token_id=token_id(tokenizer, END),
        bos_token_id=None,
        dtype="float32",
    )


def _read_manifest(directory: Path) -> Any:
    try:
        return json.loads((directory / MANIFEST).read_text())
    except (FileNotFoundError, NotADirectoryError, json.JSONDecodeError):
        return None


def _silent(done: int, total: int, loss: float) -> None:
    """Report nothing."""
