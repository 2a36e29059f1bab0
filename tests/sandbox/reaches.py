"""Ways to reach what a program was not given: each is the source of a function ``reach``.

``reach()`` yields whatever it got hold of. What counts is a canary in it: ``CNRY``, a letter and
eight digits. Data only.
"""
# ruff: noqa: E501 (programs, not code of ours)

PRELUDE = r"""
import ctypes, gc, os, re, sys, types
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = libc.sbrk.restype = libc.malloc.restype = libc.mmap.restype = ctypes.c_void_p
def syscall(number, *a):
    n = libc.syscall(ctypes.c_long(number), *[ctypes.c_long(x) if isinstance(x, int) else x for x in a])
    return -1 if n is None or n >= 1 << 63 else n
def text_of(thing):
    try:
        if isinstance(thing, (bytes, bytearray, memoryview)): return bytes(thing).decode("latin-1")
        return thing if isinstance(thing, str) else repr(thing)[:1_000_000]
    except Exception:
        return ""
def seen(reach):
    pattern = re.compile("CN" + r"RY[A-Z]\d{8}")
    found = set()
    try:
        for thing in reach(): found.update(pattern.findall(text_of(thing)))
    except (OSError, ValueError, ImportError, AttributeError, TypeError):
        pass
    return sorted(found)
def above(frame):
    while frame:
        yield frame.f_locals; yield frame.f_globals; yield frame.f_code.co_consts
        frame = frame.f_back
def mapped(start, end):
    r, w = os.pipe()
    at = start & ~4095
    while at < end:
        n = libc.write(w, ctypes.c_void_p(at), 65536)
        if n <= 0:
            at += 4096
            continue
        data = os.read(r, n)
        yield data
        at = (at + n) & ~4095 if n >= 4096 else at + 4096
def around(anchor, reach_bytes):
    return mapped(max(0, anchor - reach_bytes), anchor + reach_bytes)
def contents(paths):
    for path in paths:
        try:
            with open(path, "rb") as f: yield f.read(1 << 20)
        except OSError:
            pass
"""

MEMORY = {
    "the heap": "def reach():\n    end = libc.sbrk(0)\n    yield from mapped(end - (64 << 20), end)\n",
    "the mapped region": (
        "def reach():\n"
        "    yield from around(ctypes.cast(libc.write, ctypes.c_void_p).value, 96 << 20)\n"
    ),
    "the arenas of objects": "def reach():\n    yield from around(id(object()), 64 << 20)\n",
    "the stack and its environment": (
        "def reach():\n"
        "    top = ctypes.c_void_p.in_dll(libc, 'environ').value\n"
        "    yield from around(ctypes.addressof(ctypes.c_int()), 1 << 20)\n"
        "    yield from around(top, 9 << 20)\n"
    ),
    "the interpreter's data": "def reach():\n    yield from around(id(type), 32 << 20)\n",
}
"""Search all memory: a pipe takes bytes from any address, and refuses those that are not mapped."""

FRAMES = {
    "frames above": "def reach():\n    yield from above(sys._getframe())\n",
    "frames of all threads": (
        "def reach():\n    for frame in sys._current_frames().values(): yield from above(frame)\n"
    ),
    "frames of a new thread": (
        "def reach():\n    import threading\n    got = []\n"
        "    t = threading.Thread(target=lambda: [got.extend(above(f)) for f in sys._current_frames().values()])\n"
        "    t.start(); t.join()\n    yield from got\n"
    ),
    "a generator's frame": (
        "def walk():\n    me = yield\n    yield list(above(me.gi_frame))\n"
        "def reach():\n    g = walk(); next(g); yield from g.send(g)\n"
    ),
    "an asynchronous generator and its task": (
        "import asyncio\n"
        "async def agen():\n    yield list(above(sys._getframe()))\n"
        "async def main():\n"
        "    got = [x async for x in agen()]\n"
        "    for t in asyncio.all_tasks(): got.append(list(above(t.get_stack()[0])))\n"
        "    return got\n"
        "def reach():\n    yield from asyncio.run(main())\n"
    ),
    "a traceback": (
        "def reach():\n    try:\n        1 / 0\n    except ZeroDivisionError as e:\n        t = e.__traceback__\n"
        "        while t:\n            yield from above(t.tb_frame); t = t.tb_next\n"
    ),
    "exceptions in flight": (
        "def reach():\n    yield sys.exc_info(); yield [getattr(sys, n, None) for n in ('last_value', 'last_traceback', 'last_exc')]\n"
        "    for e in gc.get_objects():\n        if isinstance(e, BaseException):\n            yield e.args; yield e.__dict__\n"
        "            if e.__traceback__: yield from above(e.__traceback__.tb_frame)\n"
    ),
    "a signal handler's frame": (
        "def reach():\n    import signal\n    got = []\n"
        "    signal.signal(signal.SIGUSR1, lambda n, f: got.extend(above(f)))\n"
        "    os.kill(os.getpid(), signal.SIGUSR1); yield from got\n"
    ),
    "a trace function's frame": (
        "def reach():\n    got = []\n    sys.settrace(lambda f, e, a: got.extend(above(f)))\n"
        "    (lambda: 1)(); sys.settrace(None); yield from got\n"
    ),
    "a profile function's frame": (
        "def reach():\n    got = []\n    sys.setprofile(lambda f, e, a: got.extend(above(f)))\n"
        "    len([]); sys.setprofile(None); yield from got\n"
    ),
    "a finalizer's frame": (
        "got = []\nclass A:\n    def __del__(self): got.extend(above(sys._getframe()))\n"
        "def reach():\n    A(); yield from got\n"
    ),
    "an audit hook's frame": (
        "def reach():\n    got = []\n    is_on = [True]\n"
        "    sys.addaudithook(lambda e, a: is_on and is_on.pop() and got.extend(above(sys._getframe())))\n"
        "    sys.audit('x'); yield from got\n"
    ),
    "an import hook's frame": (
        "class F:\n    def find_spec(self, *a): got.extend(above(sys._getframe()))\n"
        "got = []\ndef reach():\n    sys.meta_path.insert(0, F())\n    try:\n        import nosuch\n    except ImportError:\n        pass\n"
        "    yield from got\n"
    ),
    "an unwinding into the caller": (
        "def reach():\n    f = sys._getframe()\n    while f.f_back: f = f.f_back\n"
        "    f.f_trace = lambda *a: None; f.f_trace_lines = True; yield f.f_locals; yield f.f_builtins\n"
    ),
    "the thread state by ctypes": (
        "def reach():\n    api = ctypes.pythonapi\n    api.PyThreadState_Get.restype = ctypes.c_void_p\n"
        "    yield from mapped(api.PyThreadState_Get(), api.PyThreadState_Get() + 8192)\n"
        "    api.PyThreadState_GetDict.restype = ctypes.py_object; yield api.PyThreadState_GetDict()\n"
    ),
}

OBJECTS = {
    "objects of the collector": (
        "def reach():\n    gc.unfreeze()\n    for x in gc.get_objects():\n"
        "        if isinstance(x, dict): yield [v for v in list(x.values()) if isinstance(v, (str, bytes, list, tuple))]\n"
        "        elif isinstance(x, (list, tuple)): yield [v for v in x if isinstance(v, (str, bytes))]\n"
    ),
    "cells and closures": (
        "def reach():\n    gc.unfreeze()\n    for x in gc.get_objects():\n        if isinstance(x, types.FunctionType):\n"
        "            for c in x.__closure__ or ():\n                try: yield c.cell_contents\n                except ValueError: pass\n"
        "            yield x.__defaults__; yield x.__dict__; yield x.__code__.co_consts\n"
    ),
    "referrers of what all share": (
        "def reach():\n    for x in (sys, os, sys.stdin, sys.modules, reach, None.__class__): yield gc.get_referrers(x)[:50]\n"
    ),
    "garbage and callbacks": "def reach():\n    yield gc.garbage; yield gc.callbacks; gc.collect(); yield gc.garbage\n",
    "all modules": (
        "def reach():\n    for m in list(sys.modules.values()):\n        for v in list(vars(m).values()): yield v\n"
    ),
    "modules that were taken out": (
        "def reach():\n    gc.unfreeze()\n    for x in gc.get_objects():\n        if isinstance(x, types.ModuleType): yield vars(x)\n"
    ),
    "sources that tracebacks cache": "import linecache\ndef reach():\n    yield linecache.cache; yield linecache.getlines('<program>'); yield linecache.getlines('main.py', {})\n",
    "compiled patterns": "def reach():\n    yield getattr(re, '_cache', 0); yield getattr(re, '_cache2', 0)\n    import functools; yield getattr(re, '_compile_template', 0)\n",
    "arguments and paths": "def reach():\n    yield [sys.argv, sys.orig_argv, sys.path, sys.path_importer_cache, sys.flags, sys.warnoptions]\n",
    "streams and their buffers": (
        "def reach():\n    for s in (sys.stdin, sys.__stdin__, sys.stdout, sys.__stdout__, sys.stderr): yield vars(type(s)); yield getattr(s, 'buffer', 0)\n"
        "    yield sys.stdin.read()\n    os.lseek(0, 0, 0); yield os.read(0, 1 << 20)\n"
    ),
    "descendants of all classes": (
        "def reach():\n    todo = [object]\n    while todo:\n        c = todo.pop(); yield vars(c)\n"
        "        try: todo += type.__subclasses__(c)\n        except TypeError: pass\n        if len(todo) > 5000: break\n"
    ),
    "other interpreters": (
        "def reach():\n    import _xxsubinterpreters as i\n    yield i.list_all()\n    for c in i.channel_list_all(): yield i.channel_recv(c)\n"
    ),
    "history and pending output": "def reach():\n    import readline\n    yield [readline.get_history_item(n) for n in range(99)]\n",
    "the judge's own functions": (
        "def reach():\n    gc.unfreeze()\n    for x in gc.get_objects():\n"
        "        if isinstance(x, types.FunctionType) and x.__module__ not in sys.modules: yield x.__globals__; yield x.__code__.co_consts\n"
    ),
}

LEFTOVERS = {
    "freed memory by malloc": (
        "def reach():\n    for size in (*range(16, 4096, 48), 1 << 14, 1 << 16, 1 << 17, 1 << 20):\n"
        "        for _ in range(20):\n            at = libc.malloc(ctypes.c_size_t(size))\n            yield ctypes.string_at(at, size)\n"
    ),
    "bytes that were not cleared": (
        "def reach():\n    f = ctypes.pythonapi.PyBytes_FromStringAndSize; f.restype = ctypes.py_object\n"
        "    for size in (*range(1, 512, 8), *range(1024, 1 << 17, 4096)):\n        yield [f(None, ctypes.c_ssize_t(size)) for _ in range(20)]\n"
    ),
    "text that was not cleared": (
        "def reach():\n    f = ctypes.pythonapi.PyUnicode_New; f.restype = ctypes.py_object\n"
        "    for size in (*range(16, 512, 8), *range(1024, 1 << 17, 4096)):\n        x = f(ctypes.c_ssize_t(size), 127); yield ctypes.string_at(id(x), size)\n"
    ),
    "fresh pages": (
        "def reach():\n    for flags in (0x22, 0x4000022, 0x21, 0x8022):\n"
        "        at = libc.mmap(None, ctypes.c_size_t(1 << 20), 3, flags, -1, ctypes.c_long(0))\n"
        "        if at and at < 1 << 47: yield ctypes.string_at(at, 1 << 20)\n"
    ),
    "files anywhere": (
        "def reach():\n    for top in ('/tmp', '/dev', '/etc', '/empty', '/var', '/run', '/mnt', '/home', '/root', '.'):\n"
        "        for folder, folders, files in os.walk(top):\n            yield [folder, folders, files]\n"
        "            yield from contents(os.path.join(folder, f) for f in files if f not in ('zero', 'full', 'random', 'urandom', 'stdin'))\n"
    ),
    "deleted files by their numbers": (
        "def reach():\n    for n in range(3, 1024):\n        try: yield os.read(n, 1 << 16)\n        except OSError: pass\n"
    ),
    "shared memory by name": (
        "def reach():\n    from multiprocessing import shared_memory\n"
        "    for name in ('left', 'psm_left', 'troupe'):\n        try: yield bytes(shared_memory.SharedMemory(name).buf)\n        except OSError: pass\n"
    ),
    "shared memory by number": (
        "def reach():\n    for n in range(64):\n        at = syscall(30, n, 0, 0o10000)\n        if at > 0: yield ctypes.string_at(at, 4096)\n"
    ),
    "message queues": (
        "def reach():\n    f = syscall(240, b'left', 2, 0, 0)\n    if f > 0: yield os.read(f, 4096)\n"
        "    b = ctypes.create_string_buffer(8192)\n    for n in range(64):\n        if syscall(70, n, b, 8192, 0, 0o4000) > 0: yield b.raw\n"
    ),
    "keys": (
        "def reach():\n    b = ctypes.create_string_buffer(4096)\n    for ring in (-1, -2, -3, -4, -5):\n"
        "        if syscall(250, 11, ring, b, 4096, 0) > 0: yield b.raw\n"
    ),
    "abstract sockets": (
        "def reach():\n    import socket\n    s = socket.socket(socket.AF_UNIX)\n    s.connect('\\0left'); yield s.recv(4096)\n"
    ),
    "processes by /proc": (
        "def reach():\n    for pid in ('self', 'thread-self', 1, 2, os.getppid(), *range(3, 40)):\n"
        "        yield from contents(f'/proc/{pid}/{n}' for n in ('environ', 'cmdline', 'maps', 'mem', 'fd/0', 'fd/1', 'root/tmp/.stdin'))\n"
        "    yield from contents(('/proc/kcore', '/proc/keys', '/proc/net/unix', '/dev/mem', '/dev/kmem'))\n"
    ),
    "memory of other processes": (
        "class V(ctypes.Structure): _fields_ = (('b', ctypes.c_void_p), ('n', ctypes.c_size_t))\n"
        "def reach():\n    b = ctypes.create_string_buffer(65536)\n    v, w = V(ctypes.addressof(b), 65536), V(libc.sbrk(0) - 65536, 65536)\n"
        "    for pid in (1, os.getppid(), *range(1, 64)):\n"
        "        if syscall(310, pid, ctypes.byref(v), 1, ctypes.byref(w), 1, 0) > 0: yield b.raw\n"
    ),
    "memory of other processes by tracing": (
        "def reach():\n    for pid in (1, os.getppid(), *range(1, 64)):\n"
        "        for request in (16, 0x4206):\n            if syscall(101, request, pid, 0, 0) == 0: yield 'CN' 'RYT00000000'\n"
    ),
    "descriptors of other processes": (
        "def reach():\n    for pid in (1, os.getppid(), *range(1, 64)):\n        f = syscall(434, pid, 0)\n"
        "        for n in range(64) if f >= 0 else ():\n            g = syscall(438, f, n, 0)\n            if g >= 0: yield os.pread(g, 65536, 0)\n"
    ),
    "a core file of a child": (
        "def reach():\n    import resource\n    resource.setrlimit(resource.RLIMIT_CORE, (resource.getrlimit(resource.RLIMIT_CORE)[1],) * 2)\n"
        "    pid = os.fork()\n    if pid == 0: os.abort()\n    os.waitpid(pid, 0)\n    yield from contents(['core', f'core.{pid}', '/tmp/core', '/core'])\n"
    ),
    "memory through io_uring": (
        "def reach():\n    b = ctypes.create_string_buffer(256)\n    for n in (425, 426, 427):\n        if syscall(n, 8, b, 0, 0, 0, 0) >= 0: yield 'CN' 'RYU00000000'\n"
    ),
    "memory through userfaultfd, memfd and secret memory": (
        "def reach():\n    for n in (323, 319, 447):\n        f = syscall(n, b'left', 0)\n        if f >= 0: yield 'CN' 'RYU00000000'; yield os.pread(f, 4096, 0)\n"
    ),
    "pages by vmsplice, remapping and migration": (
        "def reach():\n    for n in (278, 216, 279, 256, 440, 448):\n        if syscall(n, 1, 0, 0, 0, 0, 0) > 0: yield 'CN' 'RYU00000000'\n"
    ),
    "a pipe that was never emptied": (
        "def reach():\n    for _ in range(60):\n        r, w = os.pipe(); os.set_blocking(r, False)\n"
        "        try: yield os.read(r, 65536)\n        except BlockingIOError: pass\n"
    ),
    "names of this and other hosts": "def reach():\n    yield os.uname(); yield os.getcwd(); yield os.getlogin()\n",
}

OWN_STACK = {
    "variables of the judge's frame": (
        "def reach():\n    f = sys._getframe()\n    while f:\n"
        "        for name in ('job', 'case', 'cases', 'known', 'request', 'body', 'test', 'tests', 'answer', 'config'):\n"
        "            yield f.f_locals.get(name); yield f.f_globals.get(name)\n        f = f.f_back\n"
    ),
    "the file that started it": "def reach():\n    yield from contents(['main.py', '.stdin', '/tmp/main.py', '/tmp/.stdin', 'program.py'])\n",
    "constants of all code": (
        "def reach():\n    gc.unfreeze()\n    todo = [x.__code__ for x in gc.get_objects() if isinstance(x, types.FunctionType)]\n    seen = set()\n"
        "    while todo:\n        c = todo.pop()\n        if c in seen: continue\n        seen.add(c); yield c.co_consts; yield c.co_filename\n"
        "        todo += [x for x in c.co_consts if isinstance(x, types.CodeType)]\n"
    ),
}

ALL = {**FRAMES, **OBJECTS, **LEFTOVERS, **OWN_STACK, **MEMORY}
"""Every way, by name."""
