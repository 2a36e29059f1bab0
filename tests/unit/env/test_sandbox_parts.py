"""The sandbox's arithmetic and protocol: filter, frames, control groups, names. No programs."""

import errno
import gc
import os
import socket
import subprocess
import tempfile
import time
from pathlib import Path

import pytest
from filter_verdict import ALLOW, ARM, KILL, X86, verdict
from hypothesis import given
from hypothesis import strategies as st
from sandbox_here import own_cgroups

from troupe.errors import InvalidArgumentError, UnavailableError
from troupe.sandbox.sandbox import Limits, Program, SandboxCommand
from troupe_env.sandbox.cgroups import Cgroups
from troupe_env.sandbox.inside import seccomp, wire
from troupe_env.sandbox.inside.counters import Counters
from troupe_env.sandbox.pool import LocalSandbox
from troupe_env.sandbox.settings import Language, SandboxSettings


@pytest.mark.parametrize(
    ("machine", "audit", "number", "arguments", "expected"),
    [
        ("x86_64", X86, 0, (), "allow"),  # read
        ("x86_64", X86, 59, (), "allow"),  # execve
        ("x86_64", X86, 41, (1, 1), errno.EPERM),  # socket, even AF_UNIX
        ("x86_64", X86, 53, (1, 1), "allow"),  # socketpair AF_UNIX
        ("x86_64", X86, 53, (2, 1), errno.EPERM),  # socketpair AF_INET
        ("x86_64", X86, 53, (1, 0x80801), "allow"),  # a stream, close-on-exec, not blocking
        ("x86_64", X86, 53, (1, 2), errno.EPERM),  # a datagram socket can name itself
        ("x86_64", X86, 53, (1, 0x80005), errno.EPERM),
        ("x86_64", X86, 56, (17,), "allow"),  # clone: fork
        ("x86_64", X86, 56, (0x3D0F00,), "allow"),  # clone: a thread
        ("x86_64", X86, 56, (0x10000011,), errno.EPERM),  # clone: a user namespace
        ("x86_64", X86, 435, (), errno.ENOSYS),  # clone3
        ("x86_64", X86, 272, (), errno.EPERM),  # unshare
        ("x86_64", X86, 101, (), errno.EPERM),  # ptrace
        ("x86_64", X86, 302, (0,), "allow"),  # prlimit64 on itself
        ("x86_64", X86, 302, (1,), errno.EPERM),  # prlimit64 on another
        ("x86_64", X86, 16, (0, 0x5401), "allow"),  # ioctl TCGETS
        ("x86_64", X86, 16, (0, 0x5412), errno.EPERM),  # ioctl TIOCSTI
        ("x86_64", X86, 157, (38,), "allow"),  # prctl no_new_privs
        ("x86_64", X86, 157, (23,), errno.EPERM),
        ("x86_64", X86, 425, (), errno.ENOSYS),  # io_uring_setup
        ("x86_64", X86, 162, (), errno.EPERM),  # sync: of all file systems of the host
        ("aarch64", ARM, 81, (), errno.EPERM),
        ("x86_64", X86, 0x40000000, (), "kill"),  # x32
        ("x86_64", 0x40000003, 0, (), "kill"),  # i386
        ("aarch64", ARM, 63, (), "allow"),  # read
        ("aarch64", ARM, 198, (1, 1), errno.EPERM),  # socket
        ("aarch64", ARM, 220, (17,), "allow"),
        ("aarch64", ARM, 220, (0x10000011,), errno.EPERM),
        ("aarch64", ARM, 97, (), errno.EPERM),  # unshare
        ("aarch64", X86, 0, (), "kill"),
    ],
)
def test_filter_when_a_call_is_made_then_judged(machine, audit, number, arguments, expected):
    found = verdict(seccomp.assemble(machine), audit, number, *arguments)
    assert found == {"allow": ALLOW, "kill": KILL}.get(expected, 0x00050000 | _number(expected))


def _number(expected) -> int:
    return expected if isinstance(expected, int) else 0


@given(st.integers(0, 500), st.integers(0, 2**64 - 1))
def test_filter_when_any_call_is_made_then_only_listed_ones_pass(number, argument):
    found = verdict(seccomp.assemble("x86_64"), X86, number, argument, argument)
    assert found in (ALLOW, 0x00050000 | errno.EPERM, 0x00050000 | errno.ENOSYS)
    dangerous = {41, 101, 155, 161, 165, 166, 175, 246, 248, 250, 272, 298, 308, 310, 311, 321, 323}
    assert number not in dangerous or found != ALLOW


def test_filter_when_the_machine_is_unknown_then_refused():
    with pytest.raises(OSError, match="riscv64"):
        seccomp.assemble("riscv64")


@given(st.dictionaries(st.text(), st.integers()), st.binary(max_size=1000))
def test_frame_when_sent_then_received_as_it_was(header, body):
    ours, theirs = socket.socketpair()
    with ours, theirs:
        wire.send(ours, header, body, 5)
        assert wire.receive(theirs, 5) == (header, body)


def test_frame_when_the_other_end_is_silent_or_gone_then_says_so():
    ours, theirs = socket.socketpair()
    with ours:
        with pytest.raises(wire.TooLate):
            wire.receive(ours, 0.01)
        theirs.send(b"\xff" * 8)
        with pytest.raises(wire.Closed, match="not one of ours"):
            wire.receive(ours, 1)
        theirs.close()
        with pytest.raises(wire.Closed):
            wire.receive(ours, 1)


def cgroup_tree(folder: Path, version: int) -> tuple[Path, Path]:
    """A look-alike of /sys/fs/cgroup and /proc, in which no kernel fills new folders."""
    root, proc = folder / "cgroup", folder / "proc"
    (proc / "self").mkdir(parents=True)
    if version == 2:
        (proc / "self/cgroup").write_text("0::/pod\n")
        own = root / "pod"
        own.mkdir(parents=True)
        (own / "cgroup.controllers").write_text("cpu memory pids")
        (own / "cgroup.subtree_control").write_text("")
        (own / "cgroup.procs").write_text("1\n2\n")
    else:
        (proc / "self/cgroup").write_text("4:memory:/a\n8:pids:/\n2:cpu,cpuacct:/b\n")
        for path in ("memory/a", "pids", "cpu/b", "cpuacct/b"):
            (root / path).mkdir(parents=True)
            (root / path / "cgroup.procs").write_text("")
    return root, proc


@pytest.mark.parametrize("version", [1, 2])
def test_cgroups_when_groups_cannot_be_filled_then_there_are_none(tmp_path: Path, version: int):
    root, proc = cgroup_tree(tmp_path, version)
    found = Cgroups("", root, proc)
    group = found.make()
    assert set(found.limits) <= {"cpu", "cpuacct"}
    assert group.counters == {}
    group.close()


def test_cgroups_when_v2_is_delegated_then_its_controllers_are_asked_for(tmp_path: Path):
    root, proc = cgroup_tree(tmp_path, 2)
    Cgroups(str(root / "pod"), root, proc)
    assert (root / "pod/cgroup.subtree_control").read_text() == "+memory +pids +cpu"
    assert (root / "pod/cgroup.procs").read_text() == "1\n2\n"


def test_cgroups_when_a_killed_service_had_this_number_then_its_groups_go_and_none_collides(
    tmp_path: Path,
):
    root, proc = cgroup_tree(tmp_path, 1)
    for number in (os.getpid(), 7):
        (proc / str(number)).mkdir()
    own = root / "cpu/b"
    kept = Cgroups("", root, proc).make()
    old = [own / f"troupe-sandbox-{os.getpid()}-{rest}" for rest in ("1", "2", "0a0b0c0d-1")]
    others = own / "troupe-sandbox-7-1"
    for folder in (*old, others):
        folder.mkdir()
    made = Cgroups("", root, proc).make()
    assert not any(folder.exists() for folder in old)
    assert others.exists()
    assert all(folder.exists() for folder in (*kept.folders, *made.folders))
    assert len({*kept.folders, *made.folders}) == len(kept.folders) + len(made.folders)


def test_counters_when_the_kernel_counted_then_differences_are_reported(tmp_path: Path):
    files: dict[str, int] = {}
    for role, text in {
        "memory_limit": "9223372036854771712\n",
        "cpu": "usage_usec 1000000\nuser_usec 1\n",
        "oom": "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n",
        "pids_hit": "max 5\n",
        "peak": "4096\n",
        "held": "3145729\n",
    }.items():
        (tmp_path / role).write_text(text)
        files[role] = os.open(tmp_path / role, os.O_RDWR)
    counters = Counters(files)
    counters.begin(1 << 20, 16)
    # 1 MiB for the program beside the 3 MiB and a byte, so 4 MiB, that its worker holds.
    assert (tmp_path / "memory_limit").read_text().startswith("5242880")
    (tmp_path / "peak").write_text("5242880\n")
    assert counters.peak_bytes() == 1 << 20
    assert not counters.was_out_of_memory()
    (tmp_path / "oom").write_text("oom_kill_disable 0\nunder_oom 0\noom_kill 3\n")
    (tmp_path / "cpu").write_text("usage_usec 1250000\n")
    assert counters.was_out_of_memory()
    assert not counters.was_out_of_pids()
    assert counters.cpu_s() == pytest.approx(0.25)
    counters.end()
    assert (tmp_path / "memory_limit").read_text().startswith(str(1 << 62))
    for number in files.values():
        os.close(number)


def test_counters_when_the_worker_is_a_member_then_it_counts_for_itself(tmp_path: Path):
    for name in ("procs", "cpu", "pids_limit"):
        (tmp_path / name).write_text("0\n")
    joins = [os.open(tmp_path / "procs", os.O_WRONLY)]
    files = {role: os.open(tmp_path / role, os.O_RDWR) for role in ("cpu", "pids_limit")}
    counters = Counters(files)
    counters.join(joins)
    with pytest.raises(OSError, match="descriptor"):
        os.fstat(joins[0])  # no program can inherit it
    counters.begin(1 << 20, 16)
    assert (tmp_path / "pids_limit").read_text().startswith("18")  # the worker and its template
    began_s = time.process_time()
    assert sum(range(200_000)) > 0
    (tmp_path / "cpu").write_text("usage_usec 5000000\n")
    assert counters.cpu_s() == pytest.approx(5.0 - (time.process_time() - began_s), abs=0.05)
    for number in files.values():
        os.close(number)


def refused(names: list[str]) -> None:
    sandbox = LocalSandbox(SandboxSettings(workers=1), "namespaces")
    with pytest.raises(InvalidArgumentError, match="file"):
        sandbox.run(Program("", files=dict.fromkeys(names, "x")), Limits())
    sandbox.close()


@pytest.mark.parametrize(
    "name", ["/etc/x", "../x", "a/../../x", "", ".", "main.py", ".stdin", "a\0"]
)
def test_program_when_a_file_name_leads_elsewhere_then_refused_before_it_runs(name: str):
    refused([name])


@pytest.mark.parametrize(
    "names",
    [
        ["a" * 256],
        ["é" * 128],
        ["a", "a/b"],
        ["a/b", "a"],
        ["a/b/c", "a/b"],
        ["main.py/x"],
        [".stdin/x"],
        ["./main.py"],
        ["x/"],
        ["x", "./x"],
        ["\ud800"],
        ["/".join("d" * 17)],
    ],
)
def test_program_when_its_files_cannot_be_laid_out_then_refused_before_it_runs(names: list[str]):
    refused(names)


def test_program_when_the_language_is_not_configured_then_names_those_that_are():
    settings = SandboxSettings(workers=1, languages={"node": Language(file="a.js", argv=["node"])})
    sandbox = LocalSandbox(settings, "namespaces")
    with pytest.raises(InvalidArgumentError, match="python, node"):
        sandbox.run(Program("", language="cobol"), Limits())
    sandbox.close()


def test_settings_when_a_folder_or_interpreter_is_missing_then_refused():
    with pytest.raises(InvalidArgumentError, match="SHOWN_PATHS"):
        LocalSandbox(SandboxSettings(shown_paths=["/no/such/folder"]), "namespaces")
    with pytest.raises(InvalidArgumentError, match="SANDBOX_PYTHON"):
        LocalSandbox(SandboxSettings(python="python3"), "namespaces")


def _held() -> tuple[int, int]:
    """Open descriptors of this process, and control groups of its sandboxes."""
    gc.collect()
    return len([*Path("/proc/self/fd").iterdir()]), len(own_cgroups())


@pytest.mark.parametrize(
    ("module", "name", "number"),
    [(subprocess, "Popen", errno.EAGAIN), (tempfile, "TemporaryFile", errno.ENOSPC)],
)
def test_sandbox_when_a_process_can_not_be_started_then_nothing_of_the_try_is_held(
    module: object, name: str, number: int, monkeypatch: pytest.MonkeyPatch
):
    real = getattr(module, name)

    def refuse(*asked: object, **how: object) -> object:
        if name == "Popen" and "pass_fds" not in how:  # asks the interpreter for its folders
            return real(*asked, **how)
        raise OSError(number, os.strerror(number))

    sandbox = LocalSandbox(SandboxSettings(workers=1), "namespaces")
    command = SandboxCommand("", "pass", (), "", {}, 1)
    before = _held()
    monkeypatch.setattr(module, name, refuse)
    for _ in range(3):
        with pytest.raises(OSError, match=os.strerror(number)):
            sandbox.run(Program("print(1)"), Limits())
        with pytest.raises(UnavailableError, match=os.strerror(number)):
            sandbox.open(command, Limits())
    assert _held() == before
    sandbox.close()
