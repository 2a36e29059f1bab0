"""``sglang.launch_server`` as the rollout sidecar starts it: ends with the sidecar, runs on CPUs.

SGLang spawns its scheduler and detokenizer, and spawn imports this script there again: so the
shims are applied at module level, in every process. With a GPU none is.

Usage: ``python launch.py --parent-pid PID <arguments of sglang.launch_server>``
"""

# SGLang and this script's torch live in another environment than the one that is type-checked.
# pyright: basic, reportMissingImports=false, reportAttributeAccessIssue=false

import ctypes
import os
import signal
import sys

import torch

if not torch.cuda.is_available():
    import cpu_shims

    cpu_shims.apply()

_PR_SET_PDEATHSIG = 1


def die_with(parent_pid: int) -> None:
    """The kernel ends this process when the sidecar is gone, however that went."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent_pid:
        sys.exit("the rollout sidecar is gone")


if __name__ == "__main__":
    assert sys.argv[1] == "--parent-pid"
    die_with(int(sys.argv[2]))

    from sglang.launch_server import run_server
    from sglang.srt.server_args import prepare_server_args
    from sglang.srt.utils import kill_process_tree

    try:
        run_server(prepare_server_args(sys.argv[3:]))
    finally:
        kill_process_tree(os.getpid(), include_parent=False)
