"""A tiny language model made here, so that Troupe can be tried without downloads or a GPU."""

from troupe_trainer.tiny_model.build import build
from troupe_trainer.tiny_model.recipe import Recipe, TinyModelShape, TinyVisionShape, WarmStart

__all__ = ["Recipe", "TinyModelShape", "TinyVisionShape", "WarmStart", "build"]
