#!/usr/bin/env python3
"""Makes the environment in which the `sglang` engine starts its server, apart from Troupe's own.

    python3.11 scripts/setup_sglang.py                 # CPU, .venv-sglang, about 1.6 GB, 2 minutes
    python3.11 scripts/setup_sglang.py --gpu --venv V  # SGLang with its own GPU wheels

SGLang pins other versions of torch and transformers than Troupe, hence the own environment. The
CPU one is the pinned list beside the shims; a finished one is left as it is (a stamp holds the
list's hash). Prints one line that says why, and exits 1, where it cannot be made.
"""

import argparse
import hashlib
import platform
import shutil
import subprocess
import sys
from pathlib import Path

VERSION = "0.5.23"
REPO = Path(__file__).resolve().parent.parent
REQUIREMENTS = REPO / "services/rollout/troupe_rollout/engines/sglang/server/requirements.txt"
NEEDED_BYTES = {"cpu": 4 * 2**30, "gpu": 20 * 2**30}
PIP_TIMEOUT_S = 1800
CHECK = (
    "import importlib.metadata as m, importlib.util as u, torch\n"
    f"assert m.version('sglang') == '{VERSION}', m.version('sglang')\n"
    "missing = [n for n in ('transformers', 'zmq', 'uvicorn', 'xgrammar', 'torchvision')"
    " if u.find_spec(n) is None]\n"
    "assert not missing, f'missing modules {missing}'\n"
    "print('torch', torch.__version__, 'cuda', torch.cuda.is_available())\n"
)


class SetupError(Exception):
    """Why there is no environment, in one line."""


def main() -> int:
    """Make or check the environment; 0 when it is usable."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--venv", type=Path, default=REPO / ".venv-sglang", help="where to make it")
    parser.add_argument("--gpu", action="store_true", help="SGLang's own wheels, for a GPU machine")
    parser.add_argument("--check", action="store_true", help="only say whether it is there")
    options = parser.parse_args()
    kind = "gpu" if options.gpu else "cpu"
    stamp = options.venv / f".troupe-{kind}-{fingerprint(kind)}"
    python = options.venv / "bin" / "python"
    try:
        if not stamp.exists():
            if options.check:
                raise SetupError(f"{options.venv} is not there or not finished; run this script")
            check_machine(options.venv, kind)
            install(options.venv, python, kind)
            verify(python)
            stamp.touch()
    except SetupError as error:
        print(f"sglang environment: {error}", file=sys.stderr)
        return 1
    print(f"sglang environment: sglang {VERSION} ({kind}) in {python}")
    return 0


def fingerprint(kind: str) -> str:
    """Changes when what would be installed changes."""
    wanted = f"{VERSION} {kind} {sys.version_info[:2]}".encode()
    return hashlib.sha256(wanted + REQUIREMENTS.read_bytes()).hexdigest()[:12]


def check_machine(venv: Path, kind: str) -> None:
    """Fail early and in words on what can't work."""
    if sys.platform != "linux" or platform.machine() != "x86_64":
        raise SetupError(f"needs Linux on x86_64, this is {sys.platform} {platform.machine()}")
    if not (3, 10) <= sys.version_info < (3, 14):
        raise SetupError(f"needs Python 3.10 to 3.13, this is {platform.python_version()}")
    venv.parent.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(venv.parent).free
    if free < NEEDED_BYTES[kind]:
        needed = NEEDED_BYTES[kind] >> 30
        raise SetupError(f"needs {needed} GiB in {venv.parent}, {free / 2**30:.1f} GiB are free")


def install(venv: Path, python: Path, kind: str) -> None:
    """A fresh environment with the pinned packages; a half-made one is replaced."""
    run([sys.executable, "-m", "venv", "--clear", str(venv)], "make the environment")
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    if kind == "gpu":
        run([*pip, f"sglang=={VERSION}"], "install SGLang with its GPU wheels")
    else:
        run([*pip, "--no-deps", "-r", str(REQUIREMENTS)], "install the pinned packages")


def verify(python: Path) -> None:
    """What was installed can be imported."""
    run([str(python), "-c", CHECK], "import torch (a CUDA build needs --extra-index-url, README)")


def run(argv: list[str], what: str) -> None:
    """One command with a deadline; its last words on failure."""
    try:
        done = subprocess.run(
            argv, timeout=PIP_TIMEOUT_S, capture_output=True, text=True, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SetupError(f"could not {what}: {error}") from error
    if done.returncode != 0:
        words = " ".join((done.stderr or done.stdout).split())[-600:]
        raise SetupError(f"could not {what}: {words}")


if __name__ == "__main__":
    sys.exit(main())
