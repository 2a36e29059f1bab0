"""Plants canaries in runs, and writes the programs that look for those of other runs."""

import reaches

from troupe.sandbox.sandbox import Limits, Program, Sandbox

PATIENT = Limits(wall_time_s=30.0, cpu_time_s=30.0, memory_bytes=160 << 20)
CONTROL = "CNRYZ99999999"
"""On the standard input of each program that looks: the search does find what is there."""
_PLANTER = """
import atexit, ctypes, hashlib, os, re, sys
literal = "CNRYS{n:08}"
stdin = sys.stdin.read()
stem = "CN" + "RY"
computed = [stem + "C{n:08}", (stem + "B{n:08}").encode() * 50]
print(stem + "O{n:08} " * 20)
sys.stderr.write(stem + "E{n:08}")
open("left", "w").write(stem + "F{n:08}")
open("/dev/shm/left", "w").write(stem + "F{n:08}")
os.environ["LEFT"] = stem + "V{n:08}"
re.compile(stem + "R{n:08}"); sys.modules[stem + "M{n:08}"] = sys
try:
    ctypes.CDLL(None).malloc(1)
    raise ValueError(stem + "X{n:08}", stdin)
except ValueError as error:
    sys.last_value = error
"""


def plant(sandbox: Sandbox, number: int) -> None:
    """One run that reads, prints, holds and computes canaries, in each way another."""
    source = _PLANTER.replace("{n:08}", f"{number:08}")
    done = sandbox.run(Program(source, stdin=f"CNRYI{number:08}\n" * 20), Limits())
    assert done.is_ok, done


def looker(reach: str) -> str:
    """The program that says which canaries of other runs ``reach`` finds, and CONTROL."""
    return (
        f"{reaches.PRELUDE}{reach}\n"
        "held = sys.stdin.read(); more = held * 100\n"  # in an arena, and on the heap
        "hits = seen(reach)\n"
        "if any(hit[4] == 'Z' for hit in hits): print('CONTROL')\n"
        "hits = [hit for hit in hits if hit[4] != 'Z']\n"
        "if hits: print('ESCAPED', len(hits), hits[:8])\n"
    )
