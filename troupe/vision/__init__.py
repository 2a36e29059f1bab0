"""Images between tasks, wires and models. Imports `tasks` and `api`, and nothing by itself.

`png` and `wire` carry them, `names` are those of a model's tensors; `model`, `layout`, `patches`
and `chat` give what a vision-language model reads, from which engines and the trainer both compute,
so that an image is the same numbers in both. Needs Pillow to read PNG and to resize, numpy for
patches. Never loads a model.
"""
