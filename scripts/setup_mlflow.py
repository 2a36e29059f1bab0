#!/usr/bin/env python3
"""Creates `.venv-mlflow` with an MLflow server for `make test-observability`.

    python3.11 scripts/setup_mlflow.py            # about 700 MB, 1 minute

MLflow holds protobuf below the version of Troupe's wire, so the server lives apart; the tracker
talks to it over REST. Prints one line that says why, and exits 1, where it cannot be had.
"""

import argparse
import sys
from pathlib import Path

from setup_sglang import SetupError, run

VERSION = "3.17.2"
REPO = Path(__file__).resolve().parent.parent


def main() -> int:
    """Make or check the environment; 0 when it is usable."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--venv", type=Path, default=REPO / ".venv-mlflow", help="where to make it")
    into: Path = parser.parse_args().venv
    stamp = into / f".installed-{VERSION}"
    try:
        if not stamp.exists():
            run([sys.executable, "-m", "venv", "--clear", str(into)], "make it")
            pip = [str(into / "bin/python"), "-m", "pip", "install", "--quiet"]
            run([*pip, "--disable-pip-version-check", f"mlflow=={VERSION}"], "install mlflow")
            stamp.touch()
    except SetupError as error:
        print(f"mlflow environment: {error}", file=sys.stderr)
        return 1
    print(f"mlflow environment: {VERSION} in {into}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
