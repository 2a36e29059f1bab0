"""What a node changes on its machine, and how it is put back: kernel settings, firewall, mounts."""

import contextlib
import os
import subprocess
from collections.abc import Generator
from pathlib import Path

KERNEL = (
    "kernel/panic",
    "kernel/panic_on_oops",
    "kernel/keys/root_maxkeys",
    "kernel/keys/root_maxbytes",
    "vm/overcommit_memory",
    "vm/panic_on_oom",
    "net/ipv4/ip_forward",
    "net/ipv4/conf/all/route_localnet",
    "net/bridge/bridge-nf-call-iptables",
    "net/bridge/bridge-nf-call-ip6tables",
    "net/netfilter/nf_conntrack_max",
    "net/netfilter/nf_conntrack_tcp_timeout_established",
    "net/netfilter/nf_conntrack_tcp_timeout_close_wait",
)
"""Below /proc/sys: what kubelet and kube-proxy set at their start."""


@contextlib.contextmanager
def kept_as_they_are() -> Generator[None]:
    """Kernel settings and firewall are afterwards what they were before."""
    before = {path: path.read_text("ascii") for path in _present()}
    print("the machine's settings before:", {str(p): v.strip() for p, v in before.items()})
    try:
        yield
    finally:
        for path, value in before.items():
            if path.read_text("ascii") != value:
                path.write_text(value, encoding="ascii")
        for family in ("iptables", "ip6tables"):
            remove_kubernetes_rules(family)
        remove_control_groups()


def remove_kubernetes_rules(family: str) -> None:
    """Take every rule and chain of Kubernetes out, and leave all others, Docker's among them."""
    saved = subprocess.run([f"{family}-save"], capture_output=True, text=True, check=True).stdout
    kept = [line for line in saved.splitlines() if "KUBE-" not in line and line[:1] != "#"]
    subprocess.run([f"{family}-restore"], input="\n".join(kept) + "\n", text=True, check=True)


def remove_control_groups() -> None:
    """Delete the groups of pods, which are empty by now, the innermost first."""
    for folder in sorted(Path("/sys/fs/cgroup").glob("*/kubepods")):
        inner = [Path(root) for root, _, _ in os.walk(folder, topdown=False)]
        for group in inner:
            with contextlib.suppress(OSError):
                group.rmdir()


def unmount_below(folder: Path) -> None:
    """Unmount what a kubelet mounted: its folder, and volumes of pods below it."""
    mounts = [line.split()[1] for line in Path("/proc/mounts").read_text("utf-8").splitlines()]
    mine = [mount for mount in mounts if mount == str(folder) or mount.startswith(f"{folder}/")]
    for mount in reversed(mine):
        subprocess.run(["umount", "--lazy", mount], check=False, timeout=30)


def is_a_kubelet_running() -> bool:
    """Whether this machine is a node already: two kubelets end each other's containers."""
    for path in Path("/proc").glob("[0-9]*/comm"):
        with contextlib.suppress(OSError):
            if path.read_text("utf-8").strip() == "kubelet":
                return True
    return False


def _present() -> list[Path]:
    paths = [Path("/proc/sys") / name for name in KERNEL]
    return [path for path in paths if path.exists()]
