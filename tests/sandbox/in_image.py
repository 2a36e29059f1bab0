"""Carries out the attacks inside the env service's image; one JSON line for the suite outside.

Run there by the image's own Python, with this folder mounted, and with nothing that the image does
not have: no pytest.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import canaries
from attacks import ALL, Attack
from watched_host import SECRET, WatchedHost, bait, mounts

import troupe_env
from troupe.errors import InvalidArgumentError
from troupe.sandbox.sandbox import Limits, Program
from troupe_env.sandbox import open_sandbox
from troupe_env.sandbox.pool import LocalSandbox
from troupe_env.sandbox.settings import SandboxSettings


def main() -> int:
    """Attack at level namespaces, or say why it is not to be had."""
    os.environ["TROUPE_TEST_SECRET"] = SECRET
    with tempfile.TemporaryDirectory() as folder:
        host = watched(Path(folder))
        try:
            sandbox = open_sandbox(
                SandboxSettings.model_validate({"level": "namespaces", "workers": 2})
            )
        except InvalidArgumentError as error:
            print(json.dumps({"refused": error.message}))
            return 0
        try:
            found = {attack.name: outcome(attack, sandbox, host) for attack in ALL}
        finally:
            sandbox.close()
            host.victim.kill()
            host.victim.wait()
    print(json.dumps({"uid": os.getuid(), "attacks": found}))
    return 0


def watched(folder: Path) -> WatchedHost:
    """What attacks aim at, in this container."""
    servers = bait(folder)
    victim = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)"])
    return WatchedHost(folder, victim, servers, mounts(folder))


def outcome(attack: Attack, sandbox: LocalSandbox, host: WatchedHost) -> str:
    """Empty when the attack was contained and an honest program runs after it as before."""
    source = attack.source
    # The service is process 1 here, and so is each run's own first process.
    names = {
        **host.names,
        "PID": str(host.victim.pid),
        "PROJECT": str(Path(troupe_env.__file__).parents[2]),
    }
    for name, value in names.items():
        source = source.replace(f"@{name}@", value)
    if attack.is_after_canaries:
        canaries.plant(sandbox, 1)
    done = sandbox.run(Program(source, stdin=canaries.CONTROL), attack.limits)
    if "ESCAPED" in done.stdout:
        return done.stdout[:500]
    # Without control groups memory may run out before the time does.
    if attack.limits_hit and done.limit is None:
        return f"ended by no limit: {done}"[:500]
    if complaints := host.complaints():
        return "; ".join(complaints)
    honest = sandbox.run(Program("print(sum(map(int, input().split())))", stdin="40 2"), Limits())
    if (honest.stdout, honest.stderr, honest.exit_code, honest.limit) != ("42\n", "", 0, None):
        return f"an honest program after it: {honest}"[:500]
    return ""


if __name__ == "__main__":
    sys.exit(main())
