"""What a module may not contain, found before any tool reads it, and the module in an answer."""

import re

MAX_SOURCE = 8_000
_SYSTEM = ("$signed", "$unsigned", "$clog2", "$bits")
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_CALL = re.compile(r"\$\w*")
_ATTRIBUTE = re.compile(r"\(\*(?!\s*\))")
_DELAY = re.compile(r"#(?!\s*\()")
_NUMBER = re.compile(r"(?<!['\w$])\d[\d_]*")
MAX_NUMBER = 4_096
"""Largest number without a size: more is a loop or a memory that no small circuit has."""
_MODULE = re.compile(r"\bmodule\b", re.ASCII)
_END = "endmodule"
_REFUSED = (
    (re.compile(r"`"), "macros and directives (`) are not allowed"),
    (re.compile(r"\\"), "escaped names (\\) are not allowed"),
    (re.compile(r'"'), "strings are not allowed"),
    (_ATTRIBUTE, "attributes (* *) are not allowed"),
    (_DELAY, "delays (#) are not allowed"),
    (re.compile(r"\b(?:final|force|release|bind|specify|primitive)\b"),
     "final, force, release, bind, specify and primitive are not allowed"),
)  # fmt: skip


def module_in(text: str) -> str:
    """From the first ``module`` to the last ``endmodule`` of an answer; empty without one."""
    begin, end = _MODULE.search(text), text.rfind(_END)
    if begin is None or end < begin.start():
        return ""
    return text[begin.start() : end + len(_END)] + "\n"


def without_module(text: str) -> str:
    """What else an answer says."""
    module = module_in(text).rstrip("\n")
    return text.replace(module, "\n", 1) if module else text


def refusal(source: str) -> str:
    """Why ``source`` is not given to the tool; empty when it is."""
    if len(source) > MAX_SOURCE:
        return f"the module has more than {MAX_SOURCE} characters"
    if not source.isascii() or not all(c.isprintable() or c in "\n\r\t" for c in source):
        return "the module has characters that are not printable ASCII"
    code = _COMMENT.sub(" ", source)
    for pattern, why in _REFUSED:
        if pattern.search(code):
            return why
    if any(int(number.replace("_", "")[:9]) > MAX_NUMBER for number in _NUMBER.findall(code)):
        return f"a number above {MAX_NUMBER} needs a size, such as 16'd5000"
    if any(call not in _SYSTEM for call in _CALL.findall(code)):
        return f"no system task is allowed, and no function but {', '.join(_SYSTEM)}"
    return ""
