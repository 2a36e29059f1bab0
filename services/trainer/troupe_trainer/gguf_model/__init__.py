"""Turns a GGUF file of a pretrained model into a folder that engines and trainer load."""

from troupe_trainer.gguf_model.convert import GgufOrigin, convert
from troupe_trainer.gguf_model.header import GgufHeader, read_header

__all__ = ["GgufHeader", "GgufOrigin", "convert", "read_header"]
