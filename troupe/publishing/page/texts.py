"""Foreign text in HTML: escaped, cut, and with nothing that reorders or hides other text."""

import html
import re

from troupe.tasks.content import writable

MAX_CHARS = 2000
"""Characters of one text that the page shows."""
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_HIDDEN = re.compile("[\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]")
"""Controls of direction, and characters without width."""
_CONTROL_PICTURES = 0x2400


def shown(text: object, *, most: int = MAX_CHARS) -> str:
    """``text`` as HTML: control characters are visible, and what is cut is counted.

    Example: ``shown("<b>\\x1b[2J") == "&lt;b&gt;␛[2J"``.
    """
    whole = str(text)
    plain = writable(_HIDDEN.sub(_code_point, _CONTROL.sub(_picture, whole[:most])))
    cut = len(whole) - most
    more = f' <span class="cut">[{cut:,} more characters]</span>' if cut > 0 else ""
    return html.escape(plain) + more


def table(head: list[str], rows: list[list[str]], *, label: str) -> str:
    """An HTML table; cells are HTML already."""
    top = "".join(f'<th scope="col">{html.escape(cell)}</th>' for cell in head)
    body = "".join("<tr>" + "".join(f"<td>{c}</td>" for c in row) + "</tr>" for row in rows)
    name = html.escape(label)
    return (
        f'<div class="wide" tabindex="0" role="region" aria-label="{name}"><table>'
        f"<caption>{name}</caption><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _picture(match: re.Match[str]) -> str:
    code = ord(match[0])
    return chr(_CONTROL_PICTURES + code) if code < 0x20 else "\u2421"


def _code_point(match: re.Match[str]) -> str:
    return f"<U+{ord(match[0]):04X}>"
