#!/usr/bin/env python3
"""Makes .venv-programs/<name> for the examples of agent programs, each from its requirements.txt.

    python scripts/program_venvs.py [NAME ...]       # all of examples/programs, or these

No environment holds all frameworks at once: they want different versions of the OpenAI SDK. One
that is up to date is left as it is; one that cannot be made is reported, and its tests are skipped.
"""

import hashlib
import subprocess
import sys
import venv
from pathlib import Path

REPO = Path(__file__).resolve().parent.parent
EXAMPLES = REPO / "examples" / "programs"
VENVS = REPO / ".venv-programs"


def make(name: str) -> bool:
    """Whether .venv-programs/<name> holds what its requirements name."""
    requirements = EXAMPLES / name / "requirements.txt"
    if not requirements.is_file():
        print(f"{name}: there is no {requirements.relative_to(REPO)}", file=sys.stderr)
        return False
    folder = VENVS / name
    stamp = folder / ".installed"
    wanted = hashlib.sha256(requirements.read_bytes()).hexdigest()
    if stamp.is_file() and stamp.read_text() == wanted:
        return True
    print(f"{name}: installing {requirements.relative_to(REPO)}", flush=True)
    venv.create(folder, with_pip=True, clear=True)
    pip = [str(folder / "bin" / "python"), "-m", "pip", "--disable-pip-version-check"]
    done = subprocess.run([*pip, "install", "--quiet", "-r", str(requirements)], check=False)
    if done.returncode:
        print(f"{name}: pip failed; its tests are skipped", file=sys.stderr)
        return False
    stamp.write_text(wanted)
    return True


def main(names: list[str]) -> int:
    """1 if one of ``names`` could not be made."""
    known = sorted(path.parent.name for path in EXAMPLES.glob("*/requirements.txt"))
    made = [make(name) for name in names or known]  # all of them, whichever fails
    return 0 if all(made) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
