#!/usr/bin/env python3
"""Creates `.venv-notebook`, a Jupyter kernel that sees the packages of the calling environment.

    .venv/bin/python scripts/setup_notebook.py            # about 130 MB, half a minute

For `make test-notebook`. Prints one line that says why, and exits 1, where it cannot be had.
"""

import sys
import sysconfig
from pathlib import Path

from setup_sglang import SetupError, run

PACKAGES = ("ipykernel==7.4.0", "nbclient==0.11.0", "datasets==5.2.0")
REPO = Path(__file__).resolve().parent.parent
VENV = REPO / ".venv-notebook"


def main() -> int:
    """Make or check the environment; 0 when it is usable."""
    stamp = VENV / ".installed"
    wanted = "\n".join(PACKAGES)
    try:
        if not stamp.is_file() or stamp.read_text() != wanted:
            run([sys.executable, "-m", "venv", "--clear", str(VENV)], "make it")
            pip = [str(VENV / "bin/python"), "-m", "pip", "install", "--quiet"]
            pip += ["--disable-pip-version-check", "-c", str(REPO / "constraints.txt")]
            run([*pip, *PACKAGES], "install Jupyter's kernel")
            ours, here = sysconfig.get_path("purelib"), VENV / "lib"
            [site] = here.glob("python*/site-packages")
            (site / "troupe.pth").write_text(f"import site; site.addsitedir({ours!r})\n")
            stamp.write_text(wanted)
    except SetupError as error:
        print(f"notebook environment: {error}", file=sys.stderr)
        return 1
    print(f"notebook environment: {' '.join(PACKAGES)} in {VENV}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
