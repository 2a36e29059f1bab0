"""Command line of the GGUF converter; ``troupe model fetch`` and ``from-gguf`` run it."""

import argparse
import sys
from pathlib import Path

from troupe.errors import ConflictError, InvalidArgumentError
from troupe_trainer.gguf_model.convert import GgufOrigin, convert
from troupe_trainer.gguf_model.header import read_header

_BAD_INPUT = 2


def main(arguments: list[str] | None = None) -> int:
    """Convert one file and print its folder; returns the exit status."""
    parsed = _parser().parse_args(arguments)
    source = GgufOrigin(parsed.origin or parsed.file.name, parsed.licence, parsed.licence_text)
    try:
        is_new = convert(parsed.file, parsed.to, source)
        if not read_header(parsed.file).has_chat_template:
            print(
                f"warning: {parsed.file} has no chat template, so messages can't be rendered; add "
                f"chat_template.jinja to {parsed.to}",
                file=sys.stderr,
            )
    except (InvalidArgumentError, ConflictError) as error:
        print(f"error: {error.message}", file=sys.stderr)
        return _BAD_INPUT
    print(f"{'made' if is_new else 'there already:'} {parsed.to}")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m troupe_trainer.gguf_model")
    parser.add_argument("file", type=Path, help="GGUF file")
    parser.add_argument("--to", type=Path, required=True, help="folder of the model")
    parser.add_argument("--origin", default="", help="where the file came from")
    parser.add_argument("--licence", default="", help="licence, where the file names none")
    parser.add_argument("--licence-text", default="", help="text for the folder's LICENSE")
    return parser


if __name__ == "__main__":
    sys.exit(main())
