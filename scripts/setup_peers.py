#!/usr/bin/env python3
"""Makes the environment of the peers that `benchmarks/vs_peers.py` measures.

    python3.11 scripts/setup_peers.py            # CPU, .venv-peers, about 1.5 GB, 2 minutes

CoMLRL and TRL come from the package index, with the torch and transformers of constraints.txt, so
that a difference is theirs and not a library's. A finished environment is left as it is (a stamp
holds the hash of the list). Prints one line that says why, and exits 1, where it cannot be made.
"""

import argparse
import hashlib
import re
import sys
from pathlib import Path

from setup_sglang import SetupError, run

REPO = Path(__file__).resolve().parent.parent
CONSTRAINTS = REPO / "constraints.txt"
PEERS = ("comlrl==1.4.3", "trl==1.16.0")
SHARED = ("torch", "transformers")
CHECK = (
    "import importlib.metadata as m\n"
    "from comlrl.trainers.reinforce import MAGRPOTrainer\n"
    "from comlrl.trainers.actor_critic import IACTrainer\n"
    "from trl import GRPOTrainer\n"
    "print({n: m.version(n) for n in ('comlrl', 'trl', 'torch', 'transformers')})\n"
)


def main() -> int:
    """Make or check the environment; 0 when it is usable."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--venv", type=Path, default=REPO / ".venv-peers", help="where to make it")
    parser.add_argument("--check", action="store_true", help="only say whether it is there")
    options = parser.parse_args()
    python = options.venv / "bin" / "python"
    stamp = options.venv / f".troupe-{fingerprint()}"
    try:
        if not stamp.exists():
            if options.check:
                raise SetupError(f"{options.venv} is not there or not finished; run this script")
            run([sys.executable, "-m", "venv", "--clear", str(options.venv)], "make it")
            pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
            run([*pip, *requirements()], "install the peers")
            run([str(python), "-W", "ignore", "-c", CHECK], "import the peers")
            stamp.touch()
    except SetupError as error:
        print(f"peers environment: {error}", file=sys.stderr)
        return 1
    print(f"peers environment: {', '.join(PEERS)} in {python}")
    return 0


def requirements() -> list[str]:
    """The peers, and the libraries below them at Troupe's own versions."""
    pins = dict(re.findall(r"^([a-z0-9-]+)==(\S+)$", CONSTRAINTS.read_text(), re.MULTILINE))
    return [*PEERS, *(f"{name}=={pins[name]}" for name in SHARED)]


def fingerprint() -> str:
    """Changes when what would be installed changes."""
    wanted = " ".join([*requirements(), str(sys.version_info[:2])])
    return hashlib.sha256(wanted.encode()).hexdigest()[:12]


if __name__ == "__main__":
    sys.exit(main())
