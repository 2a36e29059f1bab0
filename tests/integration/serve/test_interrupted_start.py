"""`troupe serve` that is interrupted before it serves."""

import signal
import subprocess
import sys


def test_serve_when_interrupted_while_it_imports_then_ends_without_a_traceback() -> None:
    command = [sys.executable, "-X", "importtime", "-m", "troupe_router.serve"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        for line in process.stderr:  # one for each module that was imported
            if line.endswith(" troupe.errors\n"):
                process.send_signal(signal.SIGINT)
                break
        told = process.stderr.read()
    assert process.returncode == -signal.SIGINT
    assert "Traceback" not in told
    assert "troupe_router.serve.app" not in told, "it was interrupted too late"
