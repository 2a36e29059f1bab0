"""Names of a model's tensors: in transformers' module, which trainers push, and in SGLang's loader.

A model that takes images has its language model under ``model.language_model`` and its tower under
``model.visual``. The files of Qwen2.5-VL and SGLang's loaders leave these prefixes out, and the
loaders pass over a name that they do not know without a word.
"""

_PREFIXES = (("model.language_model.", "model."), ("model.visual.", "visual."))


def served_name(name: str) -> str:
    """By which SGLang loads the tensor that transformers' module calls ``name``."""
    for ours, theirs in _PREFIXES:
        if name.startswith(ours):
            return theirs + name.removeprefix(ours)
    return name


def module_name(name: str) -> str:
    """How transformers' module of a model that takes images calls the tensor of a file."""
    served = served_name(name)
    for ours, theirs in _PREFIXES:
        if served.startswith(theirs):
            return ours + served.removeprefix(theirs)
    return name
