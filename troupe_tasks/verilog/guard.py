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
_OPEN_COMMENT = re.compile(r"//[^\n]*|/\*.*?(?:\*/|\Z)", re.DOTALL)
_INK = re.compile(r"[^\n]")
_MODULE = re.compile(r"\bmodule\b", re.ASCII)
_END = "endmodule"
_WORD = re.compile(r"(^[ \t]*)?\b(module|endmodule)\b", re.ASCII | re.MULTILINE)
_JOINT = re.compile(r"[;\s]*(?::\s*\w+[;\s]*)?", re.ASCII)
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
    """The modules that an answer ends with, drafts and prose before them left out.

    A module begins at the start of a line; those that follow each other belong together. Where
    none begins so, from the first ``module`` to the last ``endmodule``; empty without one.
    """
    drafts = _drafts(text)
    return text[slice(*drafts[-1])] + "\n" if drafts else ""


def without_module(text: str) -> str:
    """What an answer says before its first draft and after its last."""
    drafts = _drafts(text)
    return f"{text[: drafts[0][0]]}\n{text[drafts[-1][1] :]}" if drafts else text


def _drafts(text: str) -> list[tuple[int, int]]:
    """Where each of the drafts begins and ends."""
    begin, end = _MODULE.search(text), text.rfind(_END)
    if begin is None or end < begin.start():
        return []
    all_of_it = (begin.start(), end + len(_END))
    code = _without_comments(text[slice(*all_of_it)])
    chains = _chains(code)
    if len(chains) == 1 and chains[0][0] == 0 and not code[chains[0][1] :].strip():
        return [all_of_it]
    return _chains(_without_comments(text)) or [all_of_it]


def _chains(code: str) -> list[tuple[int, int]]:
    """Where modules begin and end that nothing but white space, ``;`` or a label comes between."""
    chains: list[tuple[int, int]] = []
    head = joint = -1
    for word in _WORD.finditer(code):
        at = word.start(2)
        if word[2] != _END:
            head = at if word[1] is not None or at == joint else head
        elif head >= 0:
            begin = chains.pop()[0] if head == joint else head
            chains.append((begin, word.end()))
            after = _JOINT.match(code, word.end())
            head, joint = -1, after.end() if after else -1
    return chains


def _without_comments(text: str) -> str:
    """As long as ``text``, with spaces for its comments; the ends of their lines stay."""
    return _OPEN_COMMENT.sub(lambda comment: _INK.sub(" ", comment[0]), text)


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
