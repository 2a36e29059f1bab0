"""What a seccomp filter says of one system call, on either machine, without loading it."""

import struct

ALLOW, KILL, ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
X86, ARM = 0xC000003E, 0xC00000B7


def verdict(code: bytes, audit: int, number: int, *arguments: int) -> int:
    """What the kernel's BPF machine returns for one system call."""
    data = struct.pack("=IIQ6Q", number, audit, 0, *(*arguments, 0, 0, 0, 0, 0, 0)[:6])
    at, value = 0, 0
    while True:
        op, jump_true, jump_false, k = struct.unpack_from("=HBBI", code, at * 8)
        at += 1
        if op == 0x20:
            value = struct.unpack_from("=I", data, k)[0]
        elif op == 0x54:
            value &= k
        elif op == 0x06:
            return k
        else:
            holds = {0x15: value == k, 0x35: value >= k, 0x45: bool(value & k)}[op]
            at += jump_true if holds else jump_false
