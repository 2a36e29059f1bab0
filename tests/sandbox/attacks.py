"""Hostile programs. Each prints ESCAPED with a detail when, and only when, it got what it wanted.

``@NAME@`` stands for something of the host that the suite watches (see ``watched_host``). A program
that is refused, limited or killed has failed. Data only.
"""
# ruff: noqa: E501 (programs, not code of ours)

import os
from dataclasses import dataclass, field

import canaries
import reaches

from troupe.sandbox.sandbox import Limits

QUICK = Limits(wall_time_s=2.0, cpu_time_s=2.0, memory_bytes=96 << 20, file_bytes=4 << 20)
PATIENT = Limits(wall_time_s=20.0, cpu_time_s=20.0, memory_bytes=96 << 20, file_bytes=4 << 20)
SHORT = Limits(wall_time_s=0.7, cpu_time_s=0.7, memory_bytes=96 << 20, file_bytes=4 << 20)


@dataclass(frozen=True)
class Attack:
    """``limits_hit``: the attack must end at one of these limits; empty: any end will do.

    ``is_after_canaries``: it looks for what a run just before it read, printed and held.
    """

    name: str
    source: str
    limits_hit: tuple[str, ...] = ()
    limits: Limits = field(default=QUICK)
    is_after_canaries: bool = False


_TRY = """
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
def escaped(*what):
    print("ESCAPED", *what, flush=True)
def forward(text):
    return text[::-1]
def tried(call, *a):
    try:
        return call(*a) or True
    except (OSError, ValueError, ImportError, AttributeError):
        return None
def syscall(number, *a):
    a = [ctypes.c_long(x) if isinstance(x, int) else x for x in a]
    return libc.syscall(ctypes.c_long(number), *a)
"""


def _attack(name: str, body: str, *limits_hit: str, limits: Limits = QUICK) -> Attack:
    return Attack(name, _TRY + body, limits_hit, limits)


RESOURCES = [
    _attack("fork bomb", "while True:\n    tried(os.fork)\n", "wall_time", "cpu_time", "memory", limits=SHORT),
    _attack("fork bomb that detaches each child", """
while True:
    if tried(os.fork) is True and os.getpid() > 3:
        tried(os.setsid)
""", "wall_time", "cpu_time", limits=SHORT),
    _attack("thread bomb", """
import threading, time
while True:
    try:
        threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
    except RuntimeError:
        if threading.active_count() > 200:
            escaped("threads", threading.active_count())
""", "wall_time", "cpu_time", limits=SHORT),
    _attack("memory bomb", "x = []\nwhile True:\n    x.append(bytearray(b'x') * (1 << 20))\n", "memory"),
    _attack("memory bomb spread over children", """
children = []
for _ in range(12):
    if tried(os.fork) is True and os.getpid() != 2:
        break
x = bytearray(b"x") * (30 << 20)
import time
time.sleep(60)
""", "memory", "wall_time", "cpu_time"),
    _attack("writes out all file systems of the host", """
if syscall(162) == 0 or syscall(306, 1) == 0: escaped("sync")
""" if os.uname().machine == "x86_64" else "if syscall(81) == 0: escaped('sync')\n"),
    _attack("flushes the device of a shared file without end", """
f = os.open("/usr/bin/env", os.O_RDONLY)
while True: os.fsync(f)
""", "wall_time", "cpu_time", limits=SHORT),
    _attack("a thousand mappings and page tables", """
import mmap
held = mmap.mmap(-1, 1 << 40, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000)
at = 0
while True:
    held[at % (1 << 40)]
    at += 2 << 20
"""),
    _attack("descriptors that are under way in sockets", """
import socket
while True:
    ring = [socket.socketpair() for _ in range(50)]
    for n in range(50):
        tried(socket.send_fds, ring[n][0], [b"x"], [end.fileno() for end in ring[n - 1]])
    del ring
""", "wall_time", "cpu_time", limits=SHORT),
    _attack("a thousand timers with signals of their own", """
import signal
for n in range(1, 65): tried(signal.signal, n, signal.SIG_IGN)
class Event(ctypes.Structure): _fields_ = [("v", ctypes.c_long), ("s", ctypes.c_int), ("n", ctypes.c_int), ("p", ctypes.c_char * 48)]
number = 0
while True:
    timer, event = ctypes.c_int(0), Event(0, 34 + number % 30, 0)
    if syscall(222, 1, ctypes.byref(event), ctypes.byref(timer)) < 0: break
    syscall(223, timer.value, 0, (ctypes.c_long * 4)(0, 1, 0, 1), None)
    number += 1
while True: pass
""", "wall_time", "cpu_time", limits=SHORT),
    _attack("shared memory that no process maps", """
held = 0
for i in range(200):
    with open(f"/dev/shm/{i}", "wb") as f:
        held += f.write(b"x" * (1 << 20))
escaped("shared memory", held)
""", "file_size"),
    _attack("memfd hoard", """
for i in range(200):
    f = os.memfd_create("x")
    os.write(f, b"x" * (1 << 20))
escaped("memfd")
"""),
    _attack("system V shared memory", "if syscall(29, 0, 1 << 20, 0o1600) >= 0: escaped('shmget')\n"),
    _attack("pipe hoard", """
held = []
while True:
    r, w = os.pipe()
    held.append((r, w))
    if len(held) > 1000: escaped("pipes"); break
"""),
    _attack("output flood on stdout", "while True: os.write(1, b'x' * 65536)\n", "output"),
    _attack("output flood on stderr", "while True: os.write(2, b'x' * 65536)\n", "output"),
    _attack("output flood from many children", """
for _ in range(6): tried(os.fork)
while True: os.write(1, b"x" * 65536)
""", "output", limits=PATIENT),
    _attack("disk fill with one file", """
with open("big", "wb") as f:
    for _ in range(64): f.write(b"x" * (1 << 20))
escaped("64 MiB on disk")
""", "file_size"),
    _attack("disk fill with many files", """
for i in range(64):
    with open(str(i), "wb") as f: f.write(b"x" * (1 << 20))
escaped("64 MiB on disk")
""", "file_size"),
    _attack("sparse and preallocated files", """
f = os.open("sparse", os.O_CREAT | os.O_RDWR)
if tried(os.posix_fallocate, f, 0, 1 << 30): escaped("preallocated")
"""),
    _attack("inode exhaustion", """
for i in range(100_000): os.mkdir(str(i))
escaped("100,000 inodes")
""", "file_size"),
    _attack("compressed-file bomb", """
import io, zlib
d = zlib.compressobj(1)
bomb = b"".join(d.compress(bytes(1 << 20)) for _ in range(128)) + d.flush()
data = zlib.decompress(bomb)
if len(data) >= 1 << 27: escaped("decompressed", len(data))
""", "memory", limits=PATIENT),
    _attack("zip bomb onto the disk", """
import zipfile
with zipfile.ZipFile("b.zip", "w", zipfile.ZIP_DEFLATED) as z:
    z.writestr("a", bytes(40 << 20))
zipfile.ZipFile("b.zip").extractall()
escaped("extracted", os.path.getsize("a"))
""", "file_size", limits=PATIENT),
    _attack("infinite loop", "while True: pass\n", "wall_time", "cpu_time", limits=SHORT),
    _attack("infinite loop in C", "10 ** 10 ** 9\n", "wall_time", "cpu_time", "memory", limits=SHORT),
    _attack("loop that ignores signals", """
import signal
for n in range(1, 65):
    tried(signal.signal, n, signal.SIG_IGN)
while True: pass
""", "wall_time", "cpu_time", limits=SHORT),
    _attack("sleep past the deadline", "import time\ntime.sleep(3600)\n", "wall_time", limits=SHORT),
    _attack("stops itself", "import signal\nos.kill(os.getpid(), signal.SIGSTOP)\n", "wall_time",
            limits=SHORT),
    _attack("stops its parent", "import signal\nos.kill(1, signal.SIGSTOP)\nimport time\ntime.sleep(60)\n",
            "wall_time", limits=SHORT),
    _attack("closes its outputs and lives on", """
os.close(0); os.close(1); os.close(2)
import time
time.sleep(60)
""", "wall_time", limits=SHORT),
    _attack("raises its own limits", """
import resource
for name in ("RLIMIT_CPU", "RLIMIT_FSIZE", "RLIMIT_NPROC", "RLIMIT_NOFILE"):
    n = getattr(resource, name)
    if tried(resource.setrlimit, n, (resource.RLIM_INFINITY, resource.RLIM_INFINITY)):
        escaped(name)
"""),
    _attack("changes the limits of its parent", """
import resource
if tried(resource.prlimit, 1, resource.RLIMIT_CPU, (1, 1)): escaped("prlimit")
"""),
    _attack("huge argument list", """
try:
    os.execv("/bin/true", ["/bin/true"] + ["x" * 100_000] * 1000)
except OSError:
    pass
"""),
]  # fmt: skip

PROCESSES = [
    _attack("daemonised child outlives the run", """
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.setsid()
        import time
        while True: time.sleep(0.01)
"""),
    _attack("child holds the outputs open", """
if os.fork() == 0:
    import time
    time.sleep(60)
os._exit(0)
"""),
    _attack("kills everything it may", "import signal\nos.kill(-1, signal.SIGKILL)\n"),
    _attack("kills its parent", """
import signal
for n in (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
    tried(os.kill, os.getppid(), n)
"""),
    _attack("kills the service by number", """
import signal
if tried(os.kill, @PID@, signal.SIGKILL): escaped("signalled the service")
"""),
    _attack("kills its process group and session", """
import signal
tried(os.killpg, 0, signal.SIGKILL)
"""),
    _attack("signals a thousand numbers", """
for pid in range(16, 70_000, 7):
    if tried(os.kill, pid, 0): escaped("reached process", pid)
"""),
    _attack("traces its parent", """
if syscall(101, 16, 1, 0, 0) >= 0: escaped("ptrace attach")
if syscall(101, 0, 0, 0, 0) >= 0: escaped("ptrace me")
"""),
    _attack("reads its parent's memory", """
buffer = ctypes.create_string_buffer(64)
class V(ctypes.Structure): _fields_ = (("b", ctypes.c_void_p), ("n", ctypes.c_size_t))
v = V(ctypes.addressof(buffer), 64)
if syscall(310, 1, ctypes.byref(v), 1, ctypes.byref(v), 1, 0) >= 0: escaped("process_vm_readv")
"""),
    _attack("takes a descriptor of its parent", """
f = syscall(434, 1, 0)
if f >= 0:
    if syscall(438, f, 3, 0) >= 0: escaped("pidfd_getfd")
    if syscall(424, f, 9, 0, 0) >= 0: escaped("pidfd_send_signal")
"""),
    _attack("forges the end of its cell", """
for number in range(3, 1024):
    if tried(os.write, number, b'{"exit_code": 0}'): escaped("wrote to descriptor", number)
"""),
]  # fmt: skip

FILES = [
    _attack("reads a file of the host", "if tried(open, '@SECRET_FILE@'): escaped('read')\n"),
    _attack("reads the project", "if tried(os.listdir, '@PROJECT@'): escaped(os.listdir('@PROJECT@'))\n"),
    _attack("reads installed packages", """
import glob
for folder in ("/usr/lib*/python*/*-packages", "/usr/local/lib*/python*/*-packages", "@PREFIX@/lib*/*/*-packages"):
    for path in glob.glob(folder + "/*"): escaped(path)
"""),
    _attack("reads accounts", """
for path in ("/etc/shadow", "/root/.ssh", "/root/.bash_history", "/home", "/var/log", "/run/secrets", "/var/run/secrets"):
    if tried(os.listdir, path) or tried(open, path): escaped(path)
if "root:" in open("/etc/passwd").read(): escaped("the host's accounts")
"""),
    _attack("reads an earlier run's files", "if os.path.exists('left-behind'): escaped('left-behind')\n"
            "open('left-behind', 'w').write('x')\n"),
    _attack("finds other runs", """
seen = set(os.listdir("/tmp")) - {"main.py", ".stdin"}
if seen: escaped(seen)
"""),
    _attack("environment secrets", """
text = repr(dict(os.environ))
if "@SECRET@" in text: escaped("environment")
libc.getenv.restype = ctypes.c_char_p
if libc.getenv(b"TROUPE_TEST_SECRET"): escaped("getenv")
"""),
    _attack("secrets by /proc", """
for path in ("/proc/1/environ", "/proc/self/environ", "/proc/@PID@/environ", "/proc/1/cmdline", "/proc/kallsyms", "/proc/mounts", "/proc/self/maps"):
    if tried(open, path): escaped(path)
"""),
    _attack("secrets in inherited memory", """
import gc
for thing in gc.get_objects():
    if isinstance(thing, dict): thing = list(thing.values())
    if isinstance(thing, (list, tuple)) and forward("@TERCES@") in [x for x in thing if isinstance(x, str)]: escaped("memory")
for module in list(sys.modules.values()):
    if getattr(module, "__name__", "").startswith(("troupe", "services", "grpc", "pydantic")):
        escaped(module)
"""),
    _attack("inherited descriptors", """
for number in range(3, 1024):
    try:
        os.fstat(number)
    except OSError:
        continue
    escaped("descriptor", number)
"""),
    _attack("writes to /usr", """
for path in ("/usr/x", "/usr/bin/x", "/lib/x", "/etc/x", "/bin/x", "/x", "/dev/x", "/root/x", "/empty/x"):
    try:
        open(path, "w"); escaped(path)
    except OSError:
        pass
"""),
    _attack("changes the interpreter", """
for path in (os.__file__, sys.executable, ctypes.__file__):
    for call in (os.unlink, os.rmdir, lambda p: os.chmod(p, 0o777), lambda p: open(p, "ab"), lambda p: os.utime(p)):
        if tried(call, path): escaped(path)
"""),
    _attack("symbolic links out", """
for target in ("@SECRET_FILE@", "/proc/self/root@SECRET_FILE@", "../../../..@SECRET_FILE@"):
    os.path.lexists("l") and os.unlink("l")
    os.symlink(target, "l")
    if tried(open, "l"): escaped(target)
"""),
    _attack("hard links and renames out", """
for path in ("/usr/bin/env", "/etc/passwd", sys.executable):
    if tried(os.link, path, "h") or tried(os.rename, path, "r"): escaped(path)
"""),
    _attack("replaces its standard input for the judge", """
os.unlink("/tmp/.stdin")
os.symlink("/etc/passwd", "/tmp/.stdin")
"""),
    _attack("devices", """
for path in ("/dev/mem", "/dev/kmsg", "/dev/kvm", "/dev/fuse", "/dev/vda", "/dev/tty", "/dev/ptmx", "/dev/pts", "/dev/net/tun", "/dev/userfaultfd"):
    if os.path.exists(path): escaped(path)
if set(os.listdir("/dev")) - {"null", "zero", "full", "random", "urandom", "shm", "stdin"}: escaped(os.listdir("/dev"))
"""),
    _attack("makes a device", """
if tried(os.mknod, "disk", 0o60600, os.makedev(254, 0)): escaped("block device")
if tried(os.mknod, "mem", 0o20600, os.makedev(1, 1)): escaped("character device")
"""),
    _attack("sysfs, cgroups and sysctl", """
for path in ("/sys", "/sys/fs/cgroup", "/proc/sys", "/sys/kernel"):
    if os.path.exists(path): escaped(path)
try:
    open("/proc/sys/kernel/core_pattern", "w"); escaped("core_pattern")
except OSError:
    pass
"""),
    _attack("walks out with openat2 and handles", """
import struct
root = os.open("/", os.O_RDONLY)
for up in ("..", "../..", "../../tmp"):
    try:
        f = os.open(up + "@SECRET_FILE@", os.O_RDONLY, dir_fd=root); escaped(up)
    except OSError:
        pass
buffer = ctypes.create_string_buffer(128)
if syscall(303, -100, b"/usr", buffer, buffer, 0) >= 0: escaped("name_to_handle_at")
if syscall(304, root, buffer, 0) >= 0: escaped("open_by_handle_at")
"""),
    _attack("file modes that give privilege", """
import shutil, subprocess
shutil.copy(sys.executable, "p")
os.chmod("p", 0o6755)
done = subprocess.run(["./p", "-c", "import os; print(os.geteuid())"], capture_output=True, text=True)
if done.stdout.strip() == "0": escaped("set-uid")
"""),
]  # fmt: skip

KERNEL = [
    _attack("new user namespace", """
for flags in (0x10000000, 0x00020000, 0x20000000, 0x40000000, 0x10020000, 0x00000080):
    if libc.unshare(flags) == 0: escaped("unshare", hex(flags))
"""),
    _attack("clone into new namespaces", """
for flags in (0x10000000, 0x30000000, 0x10020000):
    pid = syscall(56, flags | 17, 0, 0, 0, 0)
    if pid == 0: os._exit(0)
    if pid > 0: escaped("clone", hex(flags))
"""),
    _attack("clone3", """
class A(ctypes.Structure): _fields_ = [(n, ctypes.c_uint64) for n in "abcdefghijk"]
a = A(); a.a = 0x10000000; a.e = 17
pid = syscall(435, ctypes.byref(a), ctypes.sizeof(a))
if pid == 0: os._exit(0)
if pid > 0: escaped("clone3")
"""),
    _attack("joins another namespace", "if libc.setns(0, 0) == 0: escaped('setns')\n"),
    _attack("mounts", """
if libc.mount(b"proc", b"/tmp", b"proc", 0, None) == 0: escaped("proc")
if libc.mount(b"tmpfs", b"/usr", b"tmpfs", 0, None) == 0: escaped("tmpfs")
if libc.mount(b"/", b"/tmp", None, 4096, None) == 0: escaped("bind")
if libc.mount(None, b"/", None, 32 | 4096, None) == 0: escaped("remount writable")
if libc.umount2(b"/tmp", 2) == 0: escaped("umount")
for number in (428, 429, 430, 432, 442):
    if syscall(number, -100, b"/", 0, 0, 0) >= 0: escaped("mount call", number)
"""),
    _attack("chroot and pivot_root", """
os.mkdir("d")
if tried(os.chroot, "d"): escaped("chroot")
if syscall(155, b".", b".") == 0: escaped("pivot_root")
"""),
    _attack("becomes root", """
for call in (lambda: os.setuid(0), lambda: os.setgid(0), lambda: os.setgroups([0]), lambda: os.setresuid(0, 0, 0)):
    if tried(call): escaped("identity")
if os.getuid() == 0 or os.geteuid() == 0: escaped("root")
"""),
    _attack("capabilities", """
header = (ctypes.c_uint32 * 2)(0x20080522, 0)
data = (ctypes.c_uint32 * 6)(*[0xFFFFFFFF] * 6)
if syscall(126, header, data) == 0: escaped("capset")
for c in range(40):
    if libc.prctl(47, 2, c, 0, 0) == 0: escaped("ambient", c)
"""),
    _attack("undoes the filter", """
if libc.prctl(38, 0, 0, 0, 0) == 0: escaped("no_new_privs off")
if libc.prctl(22, 0, 0, 0, 0) == 0: escaped("seccomp off")
if libc.prctl(39, 0, 0, 0, 0) != 1: escaped("no_new_privs is off")
"""),
    _attack("calls by the x32 and i386 tables", """
pid = os.fork()
if pid == 0:
    syscall(0x40000000 + 39)
    os.write(1, b"ESCAPED x32\\n")
    os._exit(0)
os.waitpid(pid, 0)
"""),
    _attack("key rings", """
for number in (248, 249, 250):
    if syscall(number, b"user", b"x", b"y", 1, -3) >= 0: escaped("keys", number)
"""),
    _attack("bpf", "if syscall(321, 0, ctypes.create_string_buffer(128), 128) >= 0: escaped('bpf')\n"),
    _attack("perf events", "if syscall(298, ctypes.create_string_buffer(128), 0, -1, -1, 0) >= 0: escaped('perf')\n"),
    _attack("io_uring", "if syscall(425, 8, ctypes.create_string_buffer(256)) >= 0: escaped('io_uring')\n"),
    _attack("userfaultfd", "if syscall(323, 1) >= 0: escaped('userfaultfd')\n"),
    _attack("kernel modules, kexec, reboot, swap", """
for number in (175, 313, 246, 169, 167, 168, 176, 153, 170, 171, 164, 227, 159):
    if syscall(number, 0, 0, 0, 0, 0) >= 0: escaped("call", number)
"""),
    _attack("the kernel's log and file handles of others", """
if syscall(103, 3, ctypes.create_string_buffer(4096), 4096) >= 0: escaped("syslog")
if syscall(312, 1, 1, 0, 0, 0) >= 0: escaped("kcmp")
if syscall(300, 0, 0) >= 0: escaped("fanotify")
if syscall(135, 0x0040000) >= 0: escaped("personality")
"""),
    _attack("types into a terminal", """
import fcntl
for request in (0x5412, 0x541C, 0x540E):
    try:
        fcntl.ioctl(0, request, b"x"); escaped("ioctl", hex(request))
    except OSError:
        pass
"""),
    _attack("message queues and semaphores of the machine", """
for number in (68, 64, 240):
    if syscall(number, 0, 0o1666, 0o666, 0) >= 0: escaped("ipc", number)
"""),
]  # fmt: skip

NETWORK = [
    _attack("internet", """
import socket
for family in (socket.AF_INET, socket.AF_INET6):
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_RAW):
        if tried(socket.socket, family, kind): escaped(family, kind)
"""),
    _attack("a port of the host", """
import socket
try:
    socket.create_connection(("127.0.0.1", @PORT@), 1); escaped("connected")
except OSError:
    pass
"""),
    _attack("every family", """
import socket
for family in range(46):
    for kind in (1, 2, 3, 5):
        if tried(socket.socket, family, kind, 0): escaped("family", family, kind)
"""),
    _attack("unix sockets of the host", """
import socket
for address in ("\\0@ABSTRACT@", "@SOCKET@", "/run/docker.sock", "/var/run/docker.sock"):
    try:
        socket.socket(socket.AF_UNIX).connect(address); escaped(address)
    except OSError:
        pass
"""),
    _attack("a socket by socketpair", """
import socket
for family in (socket.AF_INET, socket.AF_INET6, 16, 17, 38, 40):
    if tried(socket.socketpair, family): escaped(family)
a, b = socket.socketpair()
try:
    a.connect("\\0@ABSTRACT@"); escaped("connect")
except OSError:
    pass
try:
    a.sendto(b"x", "\\0@ABSTRACT@"); escaped("sendto")
except (OSError, TypeError):
    pass
"""),
    _attack("a name without bind, for a later run to find", """
import socket
for kind in (socket.SOCK_DGRAM, socket.SOCK_SEQPACKET, socket.SOCK_STREAM):
    pair = tried(socket.socketpair, socket.AF_UNIX, kind)
    if not pair: continue
    for end in pair:
        tried(end.setsockopt, socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        tried(end.send, b"x")
        for name in ("", "\\0left-behind", "/tmp/left-behind"):
            if tried(end.bind, name): escaped("bind", kind)
        if end.getsockname(): escaped("named", kind, end.getsockname())
"""),
    _attack("names", """
import socket
try:
    socket.getaddrinfo("example.com", 80); escaped("resolved")
except OSError:
    pass
"""),
    _attack("tools of the system", """
import subprocess
for argv in (["/bin/mount", "-t", "tmpfs", "x", "/tmp"], ["/usr/bin/unshare", "-Ur", "true"], ["/bin/su", "-c", "id"], ["/usr/bin/newuidmap", "1", "0", "0", "1"]):
    try:
        if subprocess.run(argv, capture_output=True, stdin=subprocess.DEVNULL, timeout=1).returncode == 0: escaped(argv)
    except (OSError, subprocess.SubprocessError):
        pass
"""),
]  # fmt: skip

JUDGE = [
    _attack("monkeypatches the judge", """
import builtins, json, sys, types
def lie(*a, **k): return True
for name in ("print", "open", "exec", "compile", "len", "isinstance"): setattr(builtins, name, lie)
os._exit = lie; os.write = lie; json.dumps = lie; sys.exit = lie
for module in list(sys.modules.values()):
    for name in ("send", "receive", "become", "live", "execute"):
        if hasattr(module, name):
            try: setattr(module, name, lie)
            except Exception: pass
"""),
    _attack("prints the expected output", """
import gc, glob, sys
frame = sys._getframe()
while frame:
    for value in list(frame.f_locals.values()) + list(frame.f_globals.values()):
        if isinstance(value, (str, bytes)) and forward("@DETCEPXE@") in repr(value): escaped("frame")
    frame = frame.f_back
for path in glob.glob("/tmp/**", recursive=True) + glob.glob("/tmp/.*") + glob.glob("/etc/*"):
    try:
        if forward("@DETCEPXE@") in open(path, errors="replace").read(): escaped(path)
    except OSError:
        pass
for thing in gc.get_objects():
    if isinstance(thing, dict): thing = list(thing.values())
    if isinstance(thing, (list, tuple)) and forward("@DETCEPXE@") in [x for x in thing if isinstance(x, str)]: escaped("memory")
"""),
    _attack("leaves something in the interpreter", """
import builtins, random
builtins.left_behind = True
sys.path.append("/tmp/left")
random.seed(1)
sys.setrecursionlimit(50_000)
"""),
    _attack("finds what another program left", """
import builtins
if hasattr(builtins, "left_behind") or "/tmp/left" in sys.path: escaped("interpreter state")
if sys.getrecursionlimit() != 1000: escaped("recursion limit")
"""),
    _attack("claims success at its end", """
import atexit, signal
atexit.register(lambda: os._exit(0))
raise RuntimeError
"""),
    _attack("crashes the interpreter", "ctypes.string_at(0)\n"),
    _attack("deep recursion in C", """
sys.setrecursionlimit(10**9)
def f(): return f()
class A:
    def __repr__(self): return repr(self)
try:
    repr(A())
except RecursionError:
    pass
"""),
]  # fmt: skip

TEMPLATE = [
    _attack("becomes a child of its parent's parent", """
pid = syscall(56, 0x8000 | 17, 0, 0, 0, 0)
if pid == 0:
    if os.getppid() != 1: escaped("a parent outside")
    os._exit(0)
"""),
    _attack("leaves a child that nobody can wait for", """
for flags in (0x8000, 0x8000 | 0x4000, 0x00800000, 0x00800000 | 0x8000 | 17):
    pid = syscall(56, flags, 0, 0, 0, 0)
    if pid == 0:
        import time
        time.sleep(60)
os._exit(0)
"""),
    _attack("answers for the template, and for its cell", """
import struct
for number in range(3, 4097):
    for data in (struct.pack("=q", 1), b"f", struct.pack("!II", 2, 0) + b"{}"):
        if tried(os.write, number, data): escaped("wrote to descriptor", number)
"""),
    _attack("takes descriptors that are under way", """
import socket, array
for number in range(256):
    s = tried(socket.socket, socket.AF_UNIX, socket.SOCK_STREAM, 0, number)
    if not s or s is True: continue
    try:
        got = s.recvmsg(1, 4096, socket.MSG_DONTWAIT)
        if got[1]: escaped("descriptors", number)
    except OSError:
        pass
"""),
    _attack("signals with a value to its cell and beyond", """
info = ctypes.create_string_buffer(128)
for pid in (0, -1, -2, 2, 3, 4, 5):
    for number in (34, 35, 64):
        if syscall(129, pid, number, info) >= 0 and pid not in (os.getpid(),): escaped("queued", pid)
        if pid > 2 and syscall(234, pid, pid, number) >= 0: escaped("tgkill", pid)
"""),
    _attack("becomes readable, and says who may trace it", """
libc.prctl(4, 1, 0, 0, 0)
for option in (0x59616D61, 35, 0x41555856, 36, 41, 43, 52, 55, 65):
    if libc.prctl(option, 1, 0, 0, 0) == 0: escaped("prctl", option)
"""),
    _attack("advises and reaps the memory of others", """
for pid in (1, os.getppid()):
    f = syscall(434, pid, 0)
    if f >= 0: escaped("pidfd", pid)
    for number in (440, 448, 256, 279, 437 + 1):
        if syscall(number, f if f >= 0 else pid, 0, 1, 21, 0) >= 0: escaped("call", number)
"""),
    _attack("leaves a mark on what all runs share", """
for path in ("/dev/null", "/dev/zero", "/dev/full", "/dev/urandom", "/usr", "/etc/passwd", sys.executable):
    for call in (lambda p: os.utime(p, (1, 1)), lambda p: os.utime(p), lambda p: os.chmod(p, 0o666), lambda p: os.chown(p, -1, 1000),
                 lambda p: os.setxattr(p, "user.left", b"x"), lambda p: os.truncate(p, 0), lambda p: os.rename(p, "/tmp/x")):
        if tried(call, path) and path != "/dev/full": escaped(path)
"""),
    _attack("watches what other runs read", """
import fcntl, signal
signal.signal(signal.SIGIO, signal.SIG_IGN)
for number in (253, 294, 254, 300, 301):
    if syscall(number, 0, 0, 0) >= 0: escaped("watch", number)
"""),
    _attack("stops the clocks and processors of others", """
import time
if tried(time.clock_settime, time.CLOCK_REALTIME, time.time()): escaped("clock")
for call in (lambda: os.nice(-5), lambda: os.sched_setaffinity(1, {0}), lambda: os.setpriority(os.PRIO_PROCESS, 1, 5),
             lambda: os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1)), lambda: os.setpriority(os.PRIO_USER, 0, 5)):
    if tried(call): escaped("scheduling")
"""),
    _attack("reads with input and output of the kernel's own", """
context = ctypes.c_ulong(0)
if syscall(206, 8, ctypes.byref(context)) >= 0: escaped("aio")
for number in (425, 426, 427):
    if syscall(number, 8, ctypes.create_string_buffer(256), 0, 0, 0, 0) >= 0: escaped("io_uring", number)
for number in (275, 276, 278):
    if number != 275 and syscall(number, 0, 1, 1, 0) > 0: escaped("tee or vmsplice", number)
"""),
    _attack("goes on after its run, in its own session and group", """
import signal
for n in range(1, 65):
    if n not in (9, 19, 32, 33): tried(signal.signal, n, signal.SIG_IGN)
for _ in range(8):
    if os.fork() == 0:
        os.setsid()
        libc.prctl(1, 0, 0, 0, 0)
        for f in range(3): os.close(f)
        while True:
            try: open("/tmp/left-behind", "a").write("x")
            except OSError: pass
"""),
    _attack("finds who went on", "import time\ntime.sleep(0.2)\n"
            "if os.path.exists('/tmp/left-behind'): escaped('left-behind')\n"
            "if tried(os.kill, 3, 0): escaped('a process')\n"),
    _attack("eats the worker's input before its program is read", """
for path in ("/dev/stdin", "/tmp/.stdin"):
    with open(path, "rb") as f:
        if len(f.read()) > 100: escaped(path)
for n in (0, 1, 2):
    try:
        if len(os.pread(n, 1 << 20, 0)) > 100: escaped("descriptor", n)
    except OSError: pass
"""),
    _attack("counts the runs before it", """
import gc, itertools
if os.getpid() != 2: escaped("its number", os.getpid())
if sum(gc.get_stats()[g]["collections"] for g in range(3)) > 50: escaped("collections")
"""),
]  # fmt: skip

RUN_TO_RUN = [
    Attack(f"an earlier run by {name}", canaries.looker(reach), (), canaries.PATIENT, True)
    for name, reach in reaches.ALL.items()
]

ALL = [*RESOURCES, *PROCESSES, *FILES, *KERNEL, *NETWORK, *JUDGE, *TEMPLATE, *RUN_TO_RUN]
"""Every attack."""
