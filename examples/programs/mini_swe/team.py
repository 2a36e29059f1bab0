"""mini-swe-agent as it was installed: its own command, told of its model by settings alone.

It knows nothing of Troupe. It works in the folder that it is started in, which in the sandbox is
empty and goes with the run; what it submits is the answer.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

CONFIG = Path(__file__).with_name("mini.yaml")
SETTINGS = {
    "MSWEA_CONFIGURED": "true",  # or it asks for a key when it is first started
    "MSWEA_COST_TRACKING": "ignore_errors",  # a model of ours has no price
    "MSWEA_GLOBAL_CONFIG_DIR": ".mini",
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",  # or it fetches one when it is imported
}


def run(task):
    """Start `mini` on the question; its trajectory says what it submitted."""
    command = [sys.executable, "-m", "minisweagent.run.mini", "--yolo", "--exit-immediately"]
    command += ["--agent-class", "default", "--config", str(CONFIG), "--output", "run.json"]
    command += ["--task", task["question"]]
    log = Path("mini.log")
    with log.open("w") as file:
        done = subprocess.run(
            command,
            env=os.environ | SETTINGS,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
        )
    if done.returncode < 0:
        # Somebody killed it, no doing of the agent's: end likewise, and it is played again.
        os.kill(os.getpid(), -done.returncode)
    if done.returncode:
        raise RuntimeError(f"mini ended with {done.returncode}: {log.read_text()[-1500:]}")
    return json.loads(Path("run.json").read_text())["info"]["submission"]
