"""Images on the wire and as a vision-language model reads them.

`png` and `wire` carry them; `model`, `layout` and `patches` give patches, placeholders and
positions, from which engines and the trainer both compute, so that an image is the same numbers in
both. Needs Pillow to read PNG and to resize, numpy for patches. Never loads a model.
"""
