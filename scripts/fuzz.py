#!/usr/bin/env python3
"""Fuzzes for a given time (`make fuzz`): new examples each round, a summary at the end.

    python scripts/fuzz.py --minutes 60 --messages 1000000

Sends the malformed gRPC messages first, then runs the properties of tests/fuzz and the REST
contract with a new seed, round after round, one at least. Logs of what failed and the examples
that did are kept in build/fuzz; such an example is tried first in every later round.
Exit 1: something failed.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path

REPO = Path(__file__).resolve().parent.parent
FOLDER = REPO / "build" / "fuzz"
LEAST = {"minutes": 0, "messages": 0, "examples": 1}
"""The smallest number of each option."""
REST = "tests/integration/router/test_rest_contract.py"


def main() -> int:
    """Fuzz; 0 when nothing failed."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument(
        "--minutes", type=float, default=60.0, help="of rounds, after the messages; 0: one round"
    )
    parser.add_argument(
        "--messages", type=int, default=1_000_000, help="malformed gRPC messages; 0: none"
    )
    parser.add_argument("--examples", type=int, default=300, help="of a property, each round")
    parser.add_argument("--seed", type=int, default=None, help="of the first round")
    options = parser.parse_args()
    for name, least in LEAST.items():
        value = getattr(options, name)
        if not value >= least:
            parser.error(f"--{name} must be at least {least}, not {value}")
    FOLDER.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    seed = random.SystemRandom().randrange(2**31) if options.seed is None else options.seed
    failed: list[str] = []
    if options.messages:
        variables = {"TROUPE_FUZZ_MESSAGES": str(options.messages), "TROUPE_FUZZ_SEED": str(seed)}
        if not passes("messages", ["tests/integration/malformed", "-s"], variables):
            failed.append("messages")
    until = time.monotonic() + options.minutes * 60
    rounds = 0
    while rounds == 0 or time.monotonic() < until:
        name = f"round-{seed + rounds}"
        variables = {
            "TROUPE_FUZZ_EXAMPLES": str(options.examples),
            "TROUPE_FUZZ_FOUND": str(FOLDER / "examples"),
            "TROUPE_FUZZ_REST_EXAMPLES": str(max(3, options.examples // 10)),
        }
        arguments = ["tests/fuzz", REST, f"--hypothesis-seed={seed + rounds}"]
        if not passes(name, arguments, variables):
            failed.append(name)
        rounds += 1
    print(
        json.dumps(
            {
                "minutes": round((time.monotonic() - began) / 60, 1),
                "messages": options.messages,
                "rounds": rounds,
                "examples_each": options.examples,
                "first_seed": seed,
                "failed": failed,
                "kept_in": str(FOLDER.relative_to(REPO)),
            }
        )
    )
    return 1 if failed else 0


def passes(name: str, arguments: list[str], variables: dict[str, str]) -> bool:
    """Run pytest once; where it fails, its whole output stays in build/fuzz/<name>.log."""
    argv = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--timeout=14400"]
    log = FOLDER / f"{name}.log"
    began = time.monotonic()
    with log.open("wb") as out:
        done = subprocess.run(
            [*argv, *arguments],
            cwd=REPO,
            env={**os.environ, **variables},
            stdout=out,
            stderr=subprocess.STDOUT,
            check=False,
        )
    lines = log.read_text("utf-8", errors="replace").strip().splitlines() or [""]
    has_passed = done.returncode == 0
    kept_log = "" if has_passed else f", {log}"
    print(f"{name}: {lines[-1]} ({time.monotonic() - began:.0f} s{kept_log})", flush=True)
    if has_passed:
        log.unlink()
    return has_passed


if __name__ == "__main__":
    sys.exit(main())
