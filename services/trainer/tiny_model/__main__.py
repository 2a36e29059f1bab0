"""Command line of the tiny-model builder; ``troupe model tiny`` runs it."""

import argparse
import json
import sys
import time
from pathlib import Path

from services.trainer.tiny_model.build import build
from services.trainer.tiny_model.recipe import ModelShape, Recipe, WarmStart


def main(arguments: list[str] | None = None) -> None:
    """Build one tiny model and say where it is."""
    parsed = _parser().parse_args(arguments)
    params = {**json.loads(parsed.params), "size": parsed.size}
    recipe = Recipe(
        task=parsed.task,
        params=params,
        seed=parsed.seed,
        shape=ModelShape.model_validate(json.loads(parsed.shape)),
        warm_start=WarmStart.model_validate(json.loads(parsed.warm_start)),
    )
    started_at = time.monotonic()
    is_built = build(recipe, parsed.out, _Report())
    seconds = time.monotonic() - started_at
    print(f"{parsed.out}: {f'built in {seconds:.0f} s' if is_built else 'already there'}")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m services.trainer.tiny_model")
    parser.add_argument("--task", default="plan_path", help="task family")
    parser.add_argument("--size", type=int, default=6, help="its size parameter")
    parser.add_argument("--params", default="{}", help="its other parameters, as JSON")
    parser.add_argument("--shape", default="{}", help="fields of ModelShape, as JSON")
    parser.add_argument("--warm-start", default="{}", help="fields of WarmStart, as JSON")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, required=True, help="directory of the model")
    return parser


class _Report:
    """Prints one line every few seconds."""

    def __init__(self, every_s: float = 5.0) -> None:
        self._every_s = every_s
        self._last = time.monotonic()

    def __call__(self, done: int, total: int, loss: float) -> None:
        now = time.monotonic()
        if done == total or now - self._last >= self._every_s:
            self._last = now
            print(f"warm start {done}/{total} loss {loss:.3f}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
