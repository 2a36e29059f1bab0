"""Command line of the tiny-model builder; ``troupe model tiny`` runs it."""

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from troupe.errors import InvalidArgumentError, NotFoundError
from troupe.spec import load_spec
from troupe.spec.issues import SpecInvalidError, issues_of
from troupe.tasks.registry import load_family
from troupe_trainer.tiny_model.answered_rows import TASK_NAME, rows_params
from troupe_trainer.tiny_model.build import build
from troupe_trainer.tiny_model.recipe import Recipe, TinyModelShape, TinyVisionShape, WarmStart

_BAD_INPUT = 2

_Part = TypeVar("_Part", TinyModelShape, TinyVisionShape, WarmStart)


def main(arguments: list[str] | None = None) -> int:
    """Build one tiny model and print its path; returns the exit status."""
    try:
        _build(_parser().parse_args(arguments))
    except (InvalidArgumentError, NotFoundError) as error:
        print(f"error: {error.message}", file=sys.stderr)
        return _BAD_INPUT
    return 0


def _build(parsed: argparse.Namespace) -> None:
    task, params = _task(parsed)
    recipe = Recipe(
        task=task,
        params=params,
        seed=parsed.seed,
        shape=_part(TinyModelShape, parsed.shape, "--shape"),
        vision=_part(TinyVisionShape, parsed.vision, "--vision") if parsed.vision else None,
        warm_start=_part(WarmStart, _warm_start(task, params, parsed.warm_start), "--warm-start"),
    )
    started_at = time.monotonic()
    is_built = build(recipe, parsed.out, _Report())
    seconds = time.monotonic() - started_at
    print(f"{parsed.out}: {f'built in {seconds:.0f} s' if is_built else 'already there'}")


def _task(parsed: argparse.Namespace) -> tuple[str, dict[str, Any]]:
    """Name and parameters of the task family; those of a spec are changed by the flags."""
    if parsed.rows is not None:
        return TASK_NAME, rows_params(parsed.rows, _fields(parsed.agents, "--agents"))
    size = {} if parsed.size is None else {"size": parsed.size}
    changed = {**_fields(parsed.params, "--params"), **size}
    if Path(parsed.task).suffix in (".yaml", ".yml", ".json"):
        task = load_spec(Path(parsed.task)).task
        return task.name, {**task.params, **changed}
    return parsed.task, changed


def _warm_start(task: str, params: dict[str, Any], text: str) -> str:
    """The family's ``usual_warm_start``, changed by the fields of the flag."""
    usual = getattr(load_family(task, params, pointer=""), "usual_warm_start", {})
    return json.dumps({**usual, **_fields(text, "--warm-start")})


def _part(model: type[_Part], text: str, flag: str) -> _Part:
    try:
        return model.model_validate(_fields(text, flag))
    except ValidationError as error:
        raise SpecInvalidError(issues_of(error, model), source=flag) from error


def _fields(text: str, flag: str) -> dict[str, Any]:
    try:
        fields = json.loads(text)
    except ValueError as error:
        raise InvalidArgumentError(f"{flag} is not JSON ({error}): {text}") from error
    if not isinstance(fields, dict):
        raise InvalidArgumentError(f"{flag} must be a JSON object of fields, got {text}")
    return fields


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m troupe_trainer.tiny_model")
    parser.add_argument("--task", default="plan_path", help="task family, or a job spec")
    parser.add_argument("--rows", type=Path, default=None, help="rows with answers, no family")
    parser.add_argument("--agents", default="{}", help="instruction by agent of --rows, as JSON")
    parser.add_argument("--size", type=int, default=None, help="its size parameter")
    parser.add_argument("--params", default="{}", help="its other parameters, as JSON")
    parser.add_argument("--shape", default="{}", help="fields of TinyModelShape, as JSON")
    parser.add_argument("--vision", default="", help="fields of TinyVisionShape, as JSON")
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
    sys.exit(main())
